#include "models/network/compute_dtype.hpp"

#include <gtest/gtest.h>

#include <string>

namespace distilld::models {
namespace {

/// /proc/cpuinfo of a processor with these flags, and of a second one that has them all.
std::string cpuinfo(const std::string& flags) {
    return "processor\t: 0\nmodel name\t: amx_tile amx_bf16\nflags\t\t: fpu vme" + flags +
           "\nvmx flags\t: ept\n\nprocessor\t: 1\nflags\t\t: fpu amx_bf16 amx_tile\n";
}

ComputeDtype automatic(const std::string& text, const torch::Device& device = torch::kCPU) {
    return resolve_dtype(Dtype::auto_select, device, text);
}

TEST(ResolveDtype, KeepsWhatIsAskedFor) {
    for (const std::string& text : {cpuinfo(""), cpuinfo(" amx_bf16 amx_tile")}) {
        EXPECT_EQ(resolve_dtype(Dtype::fp32, torch::kCPU, text), ComputeDtype::fp32);
        EXPECT_EQ(resolve_dtype(Dtype::bf16, torch::kCPU, text), ComputeDtype::bf16);
        EXPECT_EQ(resolve_dtype(Dtype::fp32, torch::kCUDA, text), ComputeDtype::fp32);
    }
}

TEST(ResolveDtype, AutoIsBf16WhereTheProcessorMultipliesIt) {
    EXPECT_EQ(automatic(cpuinfo(" amx_bf16 avx512_fp16 amx_tile amx_int8")), ComputeDtype::bf16);
    EXPECT_EQ(automatic(cpuinfo(" amx_tile amx_bf16")), ComputeDtype::bf16) << "the last word of the line";
    EXPECT_EQ(automatic(cpuinfo(" amx_bf16 amx_tile")), ComputeDtype::bf16);
    EXPECT_EQ(automatic(cpuinfo(" amx_bf16")), ComputeDtype::fp32) << "the system has switched tiles off";
    EXPECT_EQ(automatic(cpuinfo(" amx_tile amx_int8")), ComputeDtype::fp32);
    EXPECT_EQ(automatic(cpuinfo(" amx_tile amx_bf16x")), ComputeDtype::fp32) << "whole words";
    EXPECT_EQ(automatic(cpuinfo(" avx512f avx512_bf16 avx512_vnni")), ComputeDtype::bf16);
    EXPECT_EQ(automatic(cpuinfo(" avx512f avx512_bf16x avx512_vnni")), ComputeDtype::fp32) << "whole words";
    EXPECT_EQ(automatic(cpuinfo(" avx512f avx512_fp16 avx_vnni")), ComputeDtype::fp32);
    EXPECT_EQ(automatic(cpuinfo("")), ComputeDtype::fp32) << "the first processor decides";
    EXPECT_EQ(automatic("flags : amx_bf16 amx_tile"), ComputeDtype::bf16) << "no line end";
    EXPECT_EQ(automatic("Features : amx_bf16 amx_tile\n"), ComputeDtype::fp32) << "not an x86 processor";
    EXPECT_EQ(automatic(""), ComputeDtype::fp32);
}

TEST(ResolveDtype, AutoIsBf16OnCuda) {
    EXPECT_EQ(automatic("", torch::kCUDA), ComputeDtype::bf16);
}

}  // namespace
}  // namespace distilld::models
