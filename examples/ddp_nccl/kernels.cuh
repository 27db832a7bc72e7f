#pragma once
// Matrix products and element-wise steps of a small network, in plain CUDA: no cuBLAS, so
// that the example needs nothing but the toolkit's compiler and NCCL.

#include <cstddef>

namespace example {

constexpr int kTile = 64, kDepth = 16, kPerThread = 4, kThreads = kTile / kPerThread;

// C[m][n] = sum over k of A[m][k] B[k][n], or of their transposed (A stored [k][m], B stored [n][k]).
template <bool kTransposeA, bool kTransposeB>
__global__ void __launch_bounds__(kThreads* kThreads)
    MatrixProduct(const float* a, const float* b, float* c, int m, int n, int k) {
  __shared__ float a_tile[kDepth][kTile + 1], b_tile[kDepth][kTile + 1];
  const int thread = threadIdx.y * kThreads + threadIdx.x, row0 = blockIdx.y * kTile, column0 = blockIdx.x * kTile;
  float sum[kPerThread][kPerThread] = {};
  for (int k0 = 0; k0 < k; k0 += kDepth) {
    for (int i = thread; i < kTile * kDepth; i += kThreads * kThreads) {
      // Neighbouring threads read neighbouring addresses, whichever way the matrix lies.
      const int a_row = kTransposeA ? i % kTile : i / kDepth, a_k = kTransposeA ? i / kTile : i % kDepth;
      const int b_column = kTransposeB ? i / kDepth : i % kTile, b_k = kTransposeB ? i % kDepth : i / kTile;
      const bool a_in = row0 + a_row < m && k0 + a_k < k, b_in = column0 + b_column < n && k0 + b_k < k;
      const size_t a_at = kTransposeA ? size_t(k0 + a_k) * m + row0 + a_row : size_t(row0 + a_row) * k + k0 + a_k;
      const size_t b_at =
          kTransposeB ? size_t(column0 + b_column) * k + k0 + b_k : size_t(k0 + b_k) * n + column0 + b_column;
      a_tile[a_k][a_row] = a_in ? a[a_at] : 0.f;
      b_tile[b_k][b_column] = b_in ? b[b_at] : 0.f;
    }
    __syncthreads();
    for (int kk = 0; kk < kDepth; ++kk)
      for (int i = 0; i < kPerThread; ++i)
        for (int j = 0; j < kPerThread; ++j)
          sum[i][j] += a_tile[kk][threadIdx.y * kPerThread + i] * b_tile[kk][threadIdx.x * kPerThread + j];
    __syncthreads();
  }
  for (int i = 0; i < kPerThread; ++i)
    for (int j = 0; j < kPerThread; ++j) {
      const int row = row0 + threadIdx.y * kPerThread + i, column = column0 + threadIdx.x * kPerThread + j;
      if (row < m && column < n) c[size_t(row) * n + column] = sum[i][j];
    }
}

__global__ void Tanh(float* x, int count) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) x[i] = tanhf(x[i]);
}

// Gradient of tanh, from its result.
__global__ void TanhBackward(const float* result, float* gradient, int count) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) gradient[i] *= 1.f - result[i] * result[i];
}

// Mean squared error: its gradient and, added up, its value.
__global__ void SquaredError(const float* result, const float* target, float* gradient, float* loss, int count) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= count) return;
  const float difference = result[i] - target[i];
  gradient[i] = 2.f * difference / count;
  atomicAdd(loss, difference * difference / count);
}

__global__ void GradientStep(float* parameters, const float* gradients, float rate, float share, size_t count) {
  const size_t i = size_t(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < count) parameters[i] -= rate * share * gradients[i];
}

}  // namespace example
