#include "analysis/communication/awaited.h"

namespace lockstep::analysis {

void EachMessageWait(const Context& context, const std::function<void(std::size_t, std::size_t, double)>& f) {
  const auto& pairs = context.tables().p2p_pairs;
  for (std::size_t i = 0; i < pairs.rows(); ++i) {
    const std::size_t source = context.Position(pairs.source_rank[i]),
                      destination = context.Position(pairs.destination_rank[i]);
    if (source == kNowhere || destination == kNowhere || source == destination) continue;
    if (pairs.late_sender_ns[i] > 0) f(source, destination, static_cast<double>(pairs.late_sender_ns[i]));
    if (pairs.late_receiver_ns[i] > 0) f(destination, source, static_cast<double>(pairs.late_receiver_ns[i]));
  }
}

double AwaitedTime::All() const {
  double all_ns = 0;
  for (std::size_t p = 0; p < collective_ns.size(); ++p) all_ns += Of(p);
  return all_ns;
}

AwaitedTime AwaitedTimeOf(const Context& context, const merge::Charges& charges) {
  const std::size_t n = context.ranks().size();
  AwaitedTime awaited{std::vector<double>(n, 0.0), std::vector<double>(n, 0.0)};
  for (std::size_t c = 0; c < context.tables().collectives.rows(); ++c)
    if (context.Counts(c) && !context.OfSameKernel(c))
      charges.EachOfAll(c, [&](std::int32_t rank, double ns) {
        const std::size_t p = context.Position(rank);
        (p == kNowhere ? awaited.untold_ns : awaited.collective_ns[p]) += ns;
      });
  EachMessageWait(context, [&](std::size_t for_whom, std::size_t, double ns) { awaited.message_ns[for_whom] += ns; });
  return awaited;
}

}  // namespace lockstep::analysis
