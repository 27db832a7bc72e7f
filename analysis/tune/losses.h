#pragma once
// Whether a run computes the same as the job as it is: the losses that the first backward passes begin with.

#include <cstddef>
#include <string>
#include <vector>

namespace lockstep::tune {

// The largest of |a - b| / max(|a|, |b|) over what both have; two that are no numbers are alike, one is not.
struct LossDifference {
  double relative = 0;
  std::size_t at = 0;        // Which loss.
  std::size_t compared = 0;  // How many.
};
LossDifference CompareLosses(const std::vector<double>& a, const std::vector<double>& b);

class LossGuard {
 public:
  // `tolerance`: relative, for settings that change the order of sums.
  explicit LossGuard(double tolerance) : tolerance_(tolerance) {}
  // A run of the job as it is. The first one is what others are compared with; how far further ones are from it is what
  // the job does by itself.
  void Reference(const std::vector<double>& losses);
  // Whether anything can be compared: there are losses, and the job repeats them. Else why not.
  bool checks() const { return why_not().empty(); }
  std::string why_not() const;
  // "" or how the run differs. `same`: the setting changes no number at all.
  std::string Differs(const std::vector<double>& losses, bool same) const;
  double noise() const { return noise_; }  // Relative, between runs of the job as it is.

 private:
  double tolerance_, noise_ = 0;
  std::size_t references_ = 0;
  std::vector<double> reference_;
};

}  // namespace lockstep::tune
