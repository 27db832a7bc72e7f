#pragma once
// Estimates the cost of a collective of some size: a table of measured transfers, interpolated. There is one table per
// kind, data type, communicator and algorithm, because costs that differ in these are not comparable. A straight line
// alpha + beta * size has errors of 2 to 50 % over all sizes (public nccl-tests logs); log-log interpolation between
// two measured sizes has errors of a few percent. So the line serves to explain the costs, and to extrapolate if
// nothing was measured.

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

namespace lockstep::replay {

class CostModel {
 public:
  // Adds one measured transfer (definitions: from the last arrival to the end). Values that are not positive are
  // ignored.
  void Add(std::uint64_t bytes, std::int64_t transfer_ns);
  // The same of one outside of the replayed steps (DDP's first step reduces all gradients at once). Used where the
  // steps know one size only, and for no line: it is as slow as a first time is.
  // `same_kind`: an operation of the steps' kind, not another one that is taken to cost as much where none of that kind
  // was seen.
  void AddBeside(std::uint64_t bytes, std::int64_t transfer_ns, bool same_kind = true);
  // What next to no bytes take there and back, by collectives of any kind among the same ranks. Not positive: not
  // known.
  void SetLatency(std::int64_t ns) { latency_ns_ = static_cast<double>(ns); }
  // Call once, after the last Add and before anything below.
  void Fit();
  bool empty() const { return knots_.empty(); }
  // Of a network whose transfers take so long whatever their size, above 0. No knots; At() gives this.
  static CostModel SameForAll(double transfer_ns);

  enum class Doubt : std::uint8_t {
    kNothing,
    kOutlier,  // Far slower than the sizes on both sides of it: excluded from interpolation.
    // More bytes per second than any memory moves, so nothing was transferred. Excluded from everything.
    kImpossible,
  };
  struct Knot {
    std::uint64_t bytes;
    double transfer_ns;  // Median.
    double quick_ns;     // Lower quartile.
    double spread;       // Robust standard deviation of the logarithm, within this size.
    std::size_t samples;
    Doubt doubt = Doubt::kNothing;
    bool beside = false;  // Of AddBeside only.
  };
  const std::vector<Knot>& knots() const { return knots_; }  // By size.

  // Of those beside of the same kind: the largest that moved more bytes than the steps' only size in no longer, and
  // twice as many per second or more as the quickest quarter of the steps'. Where there is one, what the steps'
  // transfers take is not a matter of their size, so nothing is known of other sizes, and none beside is used.
  const std::optional<Knot>& contradiction() const { return contradiction_; }

  struct Estimate {
    double ns, low_ns, high_ns;  // The range contains about 90 % of single transfers.
    bool extrapolated;
    double factor;  // The factor of the error of `ns` itself, up or down; above 1. 90 %.
  };
  // Returns nothing if there is no usable size.
  std::optional<Estimate> At(std::uint64_t bytes) const;

  struct Line {
    double alpha_ns, beta_ns_per_byte;   // At least 0; above 0.
    std::optional<double> median_error;  // Relative, over the knots; a line through two of them has no error.
  };
  // Least squares of the relative error (weights 1 / t^2). Returns nothing if fewer than two sizes are known, or if
  // more bytes take no longer: then they contain no bandwidth.
  std::optional<Line> AlphaBeta() const;
  // The number of sizes used for it.
  std::size_t usable_sizes() const {
    return static_cast<std::size_t>(
        std::count_if(usable_.begin(), usable_.end(), [](const Knot& knot) { return !knot.beside; }));
  }

  // The relative error of each usable inner size if it had not been measured: the quality of the interpolation.
  std::vector<double> LeaveOneOut() const;

 private:
  std::optional<Estimate> Interpolate(const std::vector<Knot>& knots, std::uint64_t bytes) const;
  void FindDoubtful();

  struct Sample {
    std::uint64_t bytes;
    std::int64_t transfer_ns;
    bool same_kind = true;  // Of those beside.
  };
  static std::vector<Knot> KnotsOf(std::vector<Sample> samples);
  void UseThoseBeside();

  std::vector<Sample> samples_, beside_;
  std::vector<Knot> knots_, usable_;
  std::optional<Knot> contradiction_;
  double latency_ns_ = 0, same_for_all_ns_ = 0;
  double between_ = 0;  // Typical error of an interpolation, as a logarithm.
};

}  // namespace lockstep::replay
