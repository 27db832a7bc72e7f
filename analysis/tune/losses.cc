#include "analysis/tune/losses.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "analysis/rules/diff.h"

namespace lockstep::tune {

LossDifference CompareLosses(const std::vector<double>& a, const std::vector<double>& b) {
  LossDifference difference;
  difference.compared = std::min(a.size(), b.size());
  for (std::size_t i = 0; i < difference.compared; ++i) {
    double relative = 0;
    if (std::isfinite(a[i]) != std::isfinite(b[i]))
      relative = INFINITY;
    else if (std::isfinite(a[i]) && a[i] != b[i])
      relative = std::fabs(a[i] - b[i]) / std::max(std::fabs(a[i]), std::fabs(b[i]));
    if (relative > difference.relative) {
      difference.relative = relative;
      difference.at = i;
    }
  }
  return difference;
}

void LossGuard::Reference(const std::vector<double>& losses) {
  if (references_++ == 0)
    reference_ = losses;
  else
    noise_ = std::max(noise_, CompareLosses(reference_, losses).relative);
}

std::string LossGuard::why_not() const {
  if (reference_.empty()) return "no loss was seen: only PyTorch's backward() shows it";
  if (noise_ > rules::kTuneLossNoise)
    return fmt::format("the job's own losses differ by {:.1g} from run to run: seed it to have them compared", noise_);
  return "";
}

std::string LossGuard::Differs(const std::vector<double>& losses, bool same) const {
  if (!checks()) return "";
  const LossDifference difference = CompareLosses(reference_, losses);
  if (difference.compared == 0) return "no loss was seen";
  const double tolerance = std::max(rules::kTuneLossNoiseFactor * noise_, same ? rules::kTuneSameLoss : tolerance_);
  if (difference.relative <= tolerance) return "";
  return fmt::format("loss {} is {:.9g} instead of {:.9g} ({:.1g} apart, {:.1g} allowed)", difference.at + 1,
                     losses[difference.at], reference_[difference.at], difference.relative, tolerance);
}

}  // namespace lockstep::tune
