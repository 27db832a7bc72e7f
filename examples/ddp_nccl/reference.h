#pragma once
// The same training on the CPU in double precision, all ranks' data: what --check compares with.

#include <cmath>
#include <cstdint>
#include <vector>

namespace example {

// Uniform in [-1, 1), the same everywhere for a key.
inline float Noise(std::uint64_t key) {
  key += 0x9e3779b97f4a7c15u;
  key = (key ^ (key >> 30)) * 0xbf58476d1ce4e5b9u;
  key = (key ^ (key >> 27)) * 0x94d049bb133111ebu;
  key ^= key >> 31;
  return static_cast<float>(static_cast<double>(key >> 40) / (1 << 23) - 1.0);
}

inline std::vector<float> InitialParameters(int layers, int width, std::uint64_t seed) {
  std::vector<float> parameters(static_cast<std::size_t>(layers) * width * width);
  const float scale = 1.f / std::sqrt(static_cast<float>(width));
  for (std::size_t i = 0; i < parameters.size(); ++i) parameters[i] = scale * Noise(seed * 1'000'003 + i);
  return parameters;
}

// One batch of a rank: inputs, and targets the network has to learn. `which` as the step.
inline std::vector<float> Batch(int batch, int width, std::uint64_t seed, int rank, int which, bool target) {
  std::vector<float> values(static_cast<std::size_t>(batch) * width);
  const std::uint64_t key = ((seed * 131 + static_cast<std::uint64_t>(rank)) * 131 + static_cast<std::uint64_t>(which));
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = (target ? 0.5f : 1.f) * Noise(key * 1'000'000'007 + 2 * i + (target ? 1 : 0));
  return values;
}
inline constexpr int kBatches = 4;  // Distinct ones per rank; steps take them in turn.

inline std::vector<double> TrainOnCpu(int steps, int layers, int width, int batch, int ranks, double rate,
                                      std::uint64_t seed) {
  const std::vector<float> start = InitialParameters(layers, width, seed);
  std::vector<double> w(start.begin(), start.end()), gradient(w.size());
  const auto at = [&](int row, int column) { return static_cast<std::size_t>(row) * width + column; };
  const std::size_t matrix = static_cast<std::size_t>(width) * width;
  for (int step = 0; step < steps; ++step) {
    std::fill(gradient.begin(), gradient.end(), 0.0);
    for (int rank = 0; rank < ranks; ++rank) {
      const std::vector<float> input = Batch(batch, width, seed, rank, step % kBatches, false),
                               target = Batch(batch, width, seed, rank, step % kBatches, true);
      std::vector<std::vector<double>> x(static_cast<std::size_t>(layers) + 1);
      x[0].assign(input.begin(), input.end());
      for (int l = 0; l < layers; ++l) {
        x[l + 1].assign(input.size(), 0.0);
        for (int i = 0; i < batch; ++i)
          for (int k = 0; k < width; ++k)
            for (int j = 0; j < width; ++j) x[l + 1][at(i, j)] += x[l][at(i, k)] * w[l * matrix + at(k, j)];
        if (l + 1 < layers)
          for (double& value : x[l + 1]) value = std::tanh(value);
      }
      std::vector<double> d(input.size()), before(input.size());
      for (std::size_t i = 0; i < d.size(); ++i) d[i] = 2 * (x[layers][i] - target[i]) / static_cast<double>(d.size());
      for (int l = layers - 1; l >= 0; --l) {
        if (l + 1 < layers)
          for (std::size_t i = 0; i < d.size(); ++i) d[i] *= 1 - x[l + 1][i] * x[l + 1][i];
        std::fill(before.begin(), before.end(), 0.0);
        for (int i = 0; i < batch; ++i)
          for (int k = 0; k < width; ++k)
            for (int j = 0; j < width; ++j) {
              gradient[l * matrix + at(k, j)] += x[l][at(i, k)] * d[at(i, j)] / ranks;
              before[at(i, k)] += d[at(i, j)] * w[l * matrix + at(k, j)];
            }
        d = before;
      }
    }
    for (std::size_t i = 0; i < w.size(); ++i) w[i] -= rate * gradient[i];
  }
  return w;
}

}  // namespace example
