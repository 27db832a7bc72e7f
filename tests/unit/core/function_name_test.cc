#include "core/function_name.h"

#include <gtest/gtest.h>

#include "core/printed.h"

namespace lockstep {
namespace {

constexpr std::string_view kAdd =
    "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, std::array<char*, 3ul> "
    ">(int, "
    "at::native::CUDAFunctor_add<float>, std::array<char*, 3ul>)";
constexpr std::string_view kLambda =
    "void at::native::elementwise_kernel<128, 4, "
    "at::native::gpu_kernel_impl_nocast<at::native::direct_copy_kernel_cuda("
    "at::TensorIteratorBase&)::{lambda()#3}::operator()() const::{lambda()#7}::operator()() const::{lambda(float)#1}>("
    "at::TensorIteratorBase&, at::native::direct_copy_kernel_cuda(at::TensorIteratorBase&)::{lambda()#3} const&)::{"
    "lambda(int)#1}>(int, X)";
constexpr std::string_view kAnonymous =
    "void at::native::(anonymous namespace)::cunn_SoftMaxForward<4, float, float, float, at::native::(anonymous "
    "namespace)::SoftMaxForwardEpilogue>(float*, float const*, int)";

TEST(FunctionName, Plain) {
  EXPECT_EQ(PlainFunction(kAdd), "vectorized_elementwise_kernel<4, CUDAFunctor_add<float>, array<char*, 3ul>>");
  EXPECT_EQ(PlainFunction(kLambda), "elementwise_kernel<128, 4, gpu_kernel_impl_nocast<direct_copy_kernel_cuda>>");
  EXPECT_EQ(PlainFunction(kAnonymous), "cunn_SoftMaxForward<4, float, float, float, SoftMaxForwardEpilogue>");
  for (const char* same : {"ampere_sgemm_128x64_tn", "ncclDevKernel_AllReduce_Sum_f32_RING_LL", "data loading (train)",
                           "", "(", "a<", "iteration 7"})
    EXPECT_EQ(PlainFunction(same), same);
}

// What tells kernels apart stays longest.
TEST(FunctionName, ShortKeepsTheFunctor) {
  for (const std::size_t columns : {40u, 60u}) {
    EXPECT_NE(PrintedShort(kAdd, columns).find("CUDAFunctor_add"), std::string::npos) << PrintedShort(kAdd, columns);
    EXPECT_NE(PrintedShort(kAnonymous, columns).find("SoftMaxForward"), std::string::npos);
  }
  EXPECT_NE(PrintedShort(kLambda, 60).find("direct_copy_kernel_cuda"), std::string::npos) << PrintedShort(kLambda, 60);
  EXPECT_EQ(ShortFunction(kAdd, 60), "vectorized_elementwise_kernel<CUDAFunctor_add>");
  EXPECT_EQ(ShortFunction(kAdd, 1000), kAdd) << "nothing goes that has room";
  for (std::size_t columns = 6; columns < 200; ++columns)
    for (const std::string_view name : {kAdd, kLambda, kAnonymous})
      EXPECT_LE(PrintedColumns(PrintedShort(name, columns)), columns);
}

TEST(FunctionName, HostileOnesComeBackSomehow) {
  for (const char* name : {"<<<<<<<<", ">>>>", "a::b::(((((", "void ", "void ::", "x<y<z", "f()()()", "::::", "{lambda",
                           "operator", "a<{(<>", "(anonymous namespace)::"}) {
    EXPECT_FALSE(PlainFunction(name).empty()) << name;
    EXPECT_LE(PrintedShort(std::string(20, 'q') + name, 12).size(), 12u);
  }
}

// Of AMD's compiler, with types that GCC's demangler does not know.
TEST(FunctionName, WhatCannotBeDemangledBeginsWithItsName) {
  EXPECT_EQ(PlainFunction("_ZN2ck6device12_GLOBAL__N_117kernel_grouped_v3INS_28GridDF16bE"),
            "kernel_grouped_v3<INS_28GridDF16bE>");
  EXPECT_TRUE(PrintedShort("_ZN2ck6device12_GLOBAL__N_117kernel_grouped_v3INS_28GridDF16bELi128ELi16EEEvT_", 30)
                  .starts_with("kernel_grouped_v3<"));
  for (const char* same : {"_Z", "_ZN", "_ZN0a", "_Z99x", "_Zno"}) EXPECT_EQ(PlainFunction(same), same);
}

TEST(FunctionName, Demangled) {
  EXPECT_EQ(Demangled("_Z3fooi"), "foo(int)");
  EXPECT_EQ(Demangled("_Z3fooi.kd"), "foo(int)");
  EXPECT_EQ(Demangled("_Zno"), "_Zno");
  EXPECT_EQ(Demangled("gemm"), "gemm");
}

TEST(FunctionName, AnEndOfArgumentsWithoutABegin) { EXPECT_EQ(PlainFunction("x)"), "x)"); }

}  // namespace
}  // namespace lockstep
