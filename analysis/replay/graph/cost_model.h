#pragma once
// What a collective of some size costs: a table of measured transfers, interpolated.
// One table per kind, data type, communicator and algorithm: what differs in these is
// not comparable. A straight line alpha + beta * size misses by 2 to 50 % over all sizes
// (public nccl-tests logs); between two measured sizes, log-log interpolation misses by a
// few, so the line serves to explain, and to extrapolate where nothing was measured.

#include <cstdint>
#include <optional>
#include <vector>

namespace lockstep::replay {

class CostModel {
 public:
  // One measured transfer (definitions: from the last arrival to the end). Not positive ones are not used.
  void Add(std::uint64_t bytes, std::int64_t transfer_ns);
  // Call once, after the last Add and before anything below.
  void Fit();
  bool empty() const { return knots_.empty(); }

  enum class Doubt : std::uint8_t {
    kNothing,
    kOutlier,     // Far slower than the sizes around it, both of them: kept out of interpolation.
    kImpossible,  // More bytes a second than any memory moves: nothing was transferred. Kept out of everything.
  };
  struct Knot {
    std::uint64_t bytes;
    double transfer_ns;  // Median.
    double spread;       // Robust standard deviation of the logarithm, within this size.
    std::size_t samples;
    Doubt doubt = Doubt::kNothing;
  };
  const std::vector<Knot>& knots() const { return knots_; }  // By size.

  struct Estimate {
    double ns, low_ns, high_ns;  // About 90 % of single transfers.
    bool extrapolated;
    double factor;  // What `ns` itself may be off by, up or down; above 1. 90 %.
  };
  // Nothing if there is no usable size.
  std::optional<Estimate> At(std::uint64_t bytes) const;

  struct Line {
    double alpha_ns, beta_ns_per_byte;   // At least 0; above 0.
    std::optional<double> median_error;  // Relative, over the knots; a line through two of them has none to show.
  };
  // Least squares of the relative error (weights 1 / t^2). Nothing where fewer than two sizes are known, or where more
  // bytes take no longer: then there is no bandwidth to be had from them.
  std::optional<Line> AlphaBeta() const;
  // Sizes that count for it.
  std::size_t usable_sizes() const { return usable_.size(); }

  // Relative error of each usable inner size if it had not been measured; what interpolation is worth here.
  std::vector<double> LeaveOneOut() const;

 private:
  std::optional<Estimate> Interpolate(const std::vector<Knot>& knots, std::uint64_t bytes) const;
  void FindDoubtful();

  struct Sample {
    std::uint64_t bytes;
    std::int64_t transfer_ns;
  };
  std::vector<Sample> samples_;
  std::vector<Knot> knots_, usable_;
  double between_ = 0;  // Typical error of an interpolation, as a logarithm.
};

}  // namespace lockstep::replay
