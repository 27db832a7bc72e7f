#include "examples/common/network.h"

#include <algorithm>
#include <cmath>

namespace lockstep::example {
namespace {

constexpr std::size_t kInputs = 64, kOutputs = 16;
constexpr std::size_t kCauses = 4;  // Hidden causes of inputs and targets.
constexpr float kBend = 0.1f;       // Width of the activation's bend around 0.

// splitmix64: the n-th value of stream (seed), without state.
std::uint64_t Mix(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}
// Uniform in [-1, 1), exact in float.
float Uniform(std::uint64_t seed, std::uint64_t n) {
  return static_cast<float>(static_cast<std::int64_t>(Mix(Mix(seed) + n) >> 40)) * 0x1p-23f - 1.0f;
}

// A ReLU with a round corner, (x + sqrt(x^2 + bend^2)) / 2: with a sharp one a
// rounding difference now and then flips a unit, and gradients could not be
// compared with those of a run that sums in another order.
float Activate(float x) {
  const float root = std::sqrt(x * x + kBend * kBend);
  return x > 0 ? (x + root) / 2 : kBend * kBend / (2 * (root - x));
}
// Its derivative, from its value.
float Slope(float y) { return 4 * y * y / (4 * y * y + kBend * kBend); }

// y[b][0..out) = bias + sum over i in [0, in) of x[b][i] * w[i][0..out).
void LinearForward(const float* w, const float* bias, const float* x, float* y, std::size_t batch, std::size_t in,
                   std::size_t out, std::size_t x_stride) {
  for (std::size_t b = 0; b < batch; ++b) std::copy(bias, bias + out, y + b * out);
  for (std::size_t i = 0; i < in; ++i) {
    const float* row = w + i * out;
    for (std::size_t b = 0; b < batch; ++b) {
      const float factor = x[b * x_stride + i];
      float* to = y + b * out;
      for (std::size_t o = 0; o < out; ++o) to[o] += factor * row[o];
    }
  }
}

// Eight partial sums in a fixed order: vectorises without reassociation by the
// compiler, hence the same bits everywhere.
float Dot(const float* a, const float* b, std::size_t n) {
  float lanes[8] = {};
  std::size_t i = 0;
  for (; i + 8 <= n; i += 8) {
    for (std::size_t k = 0; k < 8; ++k) lanes[k] += a[i + k] * b[i + k];
  }
  float sum = 0;
  for (; i < n; ++i) sum += a[i] * b[i];
  for (const float lane : lanes) sum += lane;
  return sum;
}

// Rows [0, rows) of dw[i][o] = sum over b of x[b][i] * dy[b][o], and, if dx is
// given, dx[b][i] = w[i] . dy[b].
void LinearBackward(const float* w, const float* x, const float* dy, float* dw, float* dx, std::size_t batch,
                    std::size_t rows, std::size_t out, std::size_t x_stride) {
  for (std::size_t i = 0; i < rows; ++i) {
    float* to = dw + i * out;
    std::fill(to, to + out, 0.0f);
    for (std::size_t b = 0; b < batch; ++b) {
      const float factor = x[b * x_stride + i];
      const float* from = dy + b * out;
      for (std::size_t o = 0; o < out; ++o) to[o] += factor * from[o];
    }
    if (!dx) continue;
    for (std::size_t b = 0; b < batch; ++b) dx[b * x_stride + i] = Dot(w + i * out, dy + b * out, out);
  }
}

}  // namespace

Network::Network(int layers, int width, int batch, std::uint64_t seed)
    : seed_(seed), batch_(static_cast<std::size_t>(batch)) {
  std::size_t in = kInputs, at = 0, largest = 0;
  for (int l = 0; l < layers; ++l) {
    // From an eighth of the width to one and a half of it, in 1024ths.
    const std::int64_t square = std::int64_t{l} * l, end = std::max(layers - 2, 1);
    const std::int64_t share = 128 + 1408 * std::min(square, end * end) / (end * end);
    std::size_t out = static_cast<std::size_t>(std::max<std::int64_t>(width * share / 1024, 1));
    if (l + 1 == layers) out = kOutputs;
    layers_.push_back({in, out, at, at + in * out});
    at += in * out + out;
    largest = std::max(largest, in * out + batch_ * std::max(in, out));
    in = out;
  }
  parameters_.resize(at);
  gradients_.resize(at);
  momentum_.resize(at);
  scratch_.resize(largest);
  for (const Layer& layer : layers_) {
    // He initialisation keeps the signal's variance through ReLU: Var = 2 / in.
    const float scale = std::sqrt(6.0f / static_cast<float>(layer.in));
    for (std::size_t i = 0; i < layer.in * layer.out; ++i) {
      parameters_[layer.weight_at + i] = scale * Uniform(seed, layer.weight_at + i);
    }
    activations_.emplace_back(batch_ * layer.in);
    deltas_.emplace_back(batch_ * layer.in);
  }
  activations_.emplace_back(batch_ * kOutputs);
  deltas_.emplace_back(batch_ * kOutputs);
  target_.resize(batch_ * kOutputs);
  causes_.resize(kCauses * (kInputs + kOutputs));
  for (std::size_t i = 0; i < causes_.size(); ++i) causes_[i] = Uniform(seed ^ 0xca05e5u, i);
}

std::uint64_t Network::TensorBytes(std::size_t tensor) const {
  const Layer& layer = layers_[tensor / 2];
  return (tensor % 2 == 0 ? layer.in : 1) * layer.out * sizeof(float);
}

std::size_t Network::TensorOffset(std::size_t tensor) const {
  const Layer& layer = layers_[tensor / 2];
  return tensor % 2 == 0 ? layer.weight_at : layer.bias_at;
}

void Network::LoadBatch(std::uint64_t first) {
  for (std::size_t b = 0; b < batch_; ++b) {
    float* x = activations_[0].data() + b * kInputs;
    float* y = target_.data() + b * kOutputs;
    std::fill(x, x + kInputs, 0.0f);
    std::fill(y, y + kOutputs, 0.0f);
    for (std::size_t k = 0; k < kCauses; ++k) {
      const float cause = Uniform(seed_ ^ 0xda7au, (first + b) * kCauses + k);
      const float* mix = &causes_[k * (kInputs + kOutputs)];
      for (std::size_t i = 0; i < kInputs; ++i) x[i] += cause * mix[i];
      for (std::size_t o = 0; o < kOutputs; ++o) y[o] += cause * mix[kInputs + o];
    }
  }
}

void Network::Forward(std::size_t layer) {
  const Layer& l = layers_[layer];
  std::vector<float>& y = activations_[layer + 1];
  LinearForward(&parameters_[l.weight_at], &parameters_[l.bias_at], activations_[layer].data(), y.data(), batch_, l.in,
                l.out, l.in);
  if (layer + 1 == layers_.size()) return;
  for (float& value : y) value = Activate(value);
}

double Network::Loss() {
  const std::vector<float>& y = activations_.back();
  const float scale = 2.0f / static_cast<float>(y.size());
  double sum = 0;
  for (std::size_t i = 0; i < y.size(); ++i) {
    const float error = y[i] - target_[i];
    sum += static_cast<double>(error) * static_cast<double>(error);
    deltas_.back()[i] = scale * error;
  }
  return sum / static_cast<double>(y.size());
}

void Network::Backward(std::size_t layer) {
  const Layer& l = layers_[layer];
  std::vector<float>& dy = deltas_[layer + 1];
  if (layer + 1 < layers_.size()) {
    const std::vector<float>& y = activations_[layer + 1];
    for (std::size_t i = 0; i < dy.size(); ++i) dy[i] *= Slope(y[i]);
  }
  float* dbias = &gradients_[l.bias_at];
  std::fill(dbias, dbias + l.out, 0.0f);
  for (std::size_t b = 0; b < batch_; ++b) {
    for (std::size_t o = 0; o < l.out; ++o) dbias[o] += dy[b * l.out + o];
  }
  LinearBackward(&parameters_[l.weight_at], activations_[layer].data(), dy.data(), &gradients_[l.weight_at],
                 layer == 0 ? nullptr : deltas_[layer].data(), batch_, l.in, l.out, l.in);
}

void Network::RepeatForward(std::size_t layer, double share) {
  const Layer& l = layers_[layer];
  for (; share > 0; share -= 1) {
    const auto rows = static_cast<std::size_t>(static_cast<double>(l.in) * std::min(share, 1.0));
    LinearForward(&parameters_[l.weight_at], &parameters_[l.bias_at], activations_[layer].data(), scratch_.data(),
                  batch_, rows, l.out, l.in);
  }
}

void Network::RepeatBackward(std::size_t layer, double share) {
  const Layer& l = layers_[layer];
  float* dw = scratch_.data();
  float* dx = layer == 0 ? nullptr : dw + l.in * l.out;
  for (; share > 0; share -= 1) {
    const auto rows = static_cast<std::size_t>(static_cast<double>(l.in) * std::min(share, 1.0));
    LinearBackward(&parameters_[l.weight_at], activations_[layer].data(), deltas_[layer + 1].data(), dw, dx, batch_,
                   rows, l.out, l.in);
  }
}

void Network::Update(float learning_rate) {
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    momentum_[i] = 0.9f * momentum_[i] + gradients_[i];
    parameters_[i] -= learning_rate * momentum_[i];
  }
}

std::uint64_t HashFloats(std::span<const float> values) {
  std::uint64_t hash = 0xcbf29ce484222325u;
  for (const std::byte byte : std::as_bytes(values)) {
    hash = (hash ^ static_cast<std::uint64_t>(byte)) * 0x100000001b3u;
  }
  return hash;
}

}  // namespace lockstep::example
