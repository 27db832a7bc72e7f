#pragma once
// A multi-layer perceptron with hand-written forward and backward passes, in
// float, and its synthetic data. Everything is a pure function of the seed, so
// that any process can recompute what any rank did.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace lockstep::example {

// Linear layer `in` -> `out`, a rounded ReLU behind all but the last.
struct Layer {
  std::size_t in, out;
  std::size_t weight_at, bias_at;  // Offsets into parameters and gradients, in floats.
};

class Network {
 public:
  // `layers` linear layers that widen towards the output, as convolutional networks
  // do: most bytes lie in the layers whose gradients are ready first. `batch`:
  // samples per pass.
  Network(int layers, int width, int batch, std::uint64_t seed);

  const std::vector<Layer>& layers() const { return layers_; }
  std::size_t batch() const { return batch_; }
  std::size_t input_size() const { return layers_.front().in; }
  std::size_t output_size() const { return layers_.back().out; }
  std::span<float> parameters() { return parameters_; }
  std::span<float> gradients() { return gradients_; }
  // Tensors in registration order: weight 0, bias 0, weight 1, ...
  std::size_t tensor_count() const { return 2 * layers_.size(); }
  std::uint64_t TensorBytes(std::size_t tensor) const;
  // Where tensor i lies in parameters() and gradients(), in floats.
  std::size_t TensorOffset(std::size_t tensor) const;

  // Samples `first` ... `first + batch - 1` of the endless data set.
  void LoadBatch(std::uint64_t first);
  void Forward(std::size_t layer);
  // Mean squared error of the batch; prepares Backward of the last layer.
  double Loss();
  // Gradients of the layer's tensors, averaged over the batch, and of its input.
  void Backward(std::size_t layer);
  // Does (share) of the arithmetic of Forward or Backward once more, for nothing.
  void RepeatForward(std::size_t layer, double share);
  void RepeatBackward(std::size_t layer, double share);
  // Stochastic gradient descent with momentum 0.9.
  void Update(float learning_rate);

 private:
  std::uint64_t seed_;
  std::size_t batch_;
  std::vector<Layer> layers_;
  std::vector<float> parameters_, gradients_, momentum_;
  std::vector<std::vector<float>> activations_;  // [l]: input of layer l, last: output.
  std::vector<std::vector<float>> deltas_;       // [l]: gradient of activations_[l].
  std::vector<float> target_, scratch_;
  std::vector<float> causes_;  // How each hidden cause shows in inputs and targets.
};

// FNV-1a over the bytes: equal if and only if (for all that matters) bitwise equal.
std::uint64_t HashFloats(std::span<const float> values);

}  // namespace lockstep::example
