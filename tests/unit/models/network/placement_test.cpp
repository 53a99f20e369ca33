#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/utils.h>

#include <cstdint>
#include <fstream>
#include <sstream>
#include <string>

#include "tests/support/temporary_folder.hpp"
#include "tests/unit/models/network/small_network.hpp"

/// Where the weights of a network that only infers lie: in memory of ours, in their files, on several devices.
namespace distilld::models {
namespace {

using test::ids;
using test::same_bits;
using test::small_config;
using ::testing::AllOf;
using ::testing::HasSubstr;

using Devices = std::vector<torch::Device>;

/// The file whose mapping an address lies in; empty: none.
std::string mapped_file_at(const void* address) {
    const auto wanted = reinterpret_cast<std::uintptr_t>(address);
    std::ifstream maps("/proc/self/maps");
    for (std::string line; std::getline(maps, line);) {
        std::istringstream text(line);
        std::uintptr_t first = 0;
        std::uintptr_t last = 0;
        char dash = 0;
        std::string rights;
        std::string rest;
        text >> std::hex >> first >> dash >> last >> rights;
        if (wanted < first || wanted >= last) {
            continue;
        }
        std::getline(text, rest);
        const auto name = rest.find('/');
        return rights.substr(0, 3) == "r--" && name != std::string::npos ? rest.substr(name) : "";
    }
    return "";
}

class Placement : public testing::TestWithParam<bool> {
  protected:
    void SetUp() override {
        torch::set_num_threads(1);
        ASSERT_TRUE(test::save(*test::make_network(small_config(GetParam())), folder_.path()));
    }

    Result<std::unique_ptr<CausalLm>> open(const Devices& devices, WeightUse use,
                                           ComputeDtype dtype = ComputeDtype::fp32) const {
        return open_causal_lm(folder_.path(), dtype, devices, model_families(), use);
    }

    static torch::Tensor logits_of(CausalLm& network) {
        const torch::NoGradGuard no_grad;
        return network.project(network.forward(ids(2, 9)));
    }

    test::TemporaryFolder folder_;
};

TEST_P(Placement, SeveralDevicesGiveTheBitsOfOne) {
    const auto one = open({torch::kCPU}, WeightUse::inference);
    const auto two = open({torch::kCPU, torch::Device(torch::kCPU, 0)}, WeightUse::inference);
    ASSERT_TRUE(one && two);
    EXPECT_TRUE(same_bits(logits_of(**one), logits_of(**two)));
}

/// A device without numbers stands for another GPU: what is not moved to it fails.
TEST_P(Placement, LayersAndWhatFlowsThroughThemAreMoved) {
    const auto network = open({torch::kCPU, torch::kMeta}, WeightUse::inference);
    ASSERT_TRUE(network) << network.error().message;
    CausalLm& lm = **network;
    EXPECT_EQ(lm.device(), torch::Device(torch::kCPU));
    const std::size_t last = lm.groups().size() - 1;
    EXPECT_EQ(lm.group_device(0), torch::Device(torch::kCPU));
    EXPECT_EQ(lm.group_device(1), torch::Device(torch::kCPU)) << "half of the layers";
    EXPECT_EQ(lm.group_device(last - 1), torch::Device(torch::kMeta));
    EXPECT_EQ(lm.group_device(last), torch::Device(torch::kMeta));
    for (std::size_t group = 0; group <= last; ++group) {
        for (const Parameter& parameter : lm.groups()[group].parameters) {
            EXPECT_EQ(parameter.held().device(), lm.group_device(group)) << parameter.name;
        }
    }
    const torch::NoGradGuard no_grad;
    try {
        EXPECT_EQ(lm.forward(ids(2, 9)).device(), torch::Device(torch::kMeta));
    } catch (const c10::Error& error) {
        // Some versions have no attention for this device; what was moved got as far as that.
        EXPECT_THAT(error.what(), HasSubstr("no fake impl or Meta kernel")) << "of a layer that got all it takes";
    }
}

TEST_P(Placement, HiddenStatesComeFromTheLastDevice) {
    Devices devices(7, torch::kCPU);
    devices.emplace_back(torch::kMeta);  // has the final norm and an untied head
    const auto network = open(devices, WeightUse::inference);
    ASSERT_TRUE(network) << network.error().message;
    const std::size_t last = (*network)->groups().size() - 1;
    ASSERT_EQ((*network)->group_device(last - 1), torch::Device(torch::kCPU));
    const torch::NoGradGuard no_grad;
    const torch::Tensor hidden = (*network)->forward(ids(2, 9));
    EXPECT_EQ(hidden.device(), torch::Device(torch::kMeta));
    EXPECT_EQ(hidden.size(1), 9);
    if (!GetParam()) {  // a tied head lies where the embedding does, and nothing comes back from this device
        EXPECT_EQ((*network)->project(hidden).device(), torch::Device(torch::kMeta));
    }
}

TEST_P(Placement, MappedWeightsAreTheFileAndGiveTheSameBits) {
    const auto read = open({torch::kCPU}, WeightUse::inference);
    const auto mapped = open({torch::kCPU}, WeightUse::mapped);
    ASSERT_TRUE(read && mapped);
    EXPECT_TRUE(same_bits(logits_of(**read), logits_of(**mapped)));
    const std::string file = (folder_.path() / "model.safetensors").string();
    for (const Parameter& parameter : all_parameters((*mapped)->groups())) {
        EXPECT_EQ(mapped_file_at(parameter.held().const_data_ptr()), file) << parameter.name;
    }
    EXPECT_NE(mapped_file_at((*read)->head_weight().const_data_ptr()), file);
}

TEST_P(Placement, WeightsOfAnotherTypeCannotBeMapped) {
    const auto refused = open({torch::kCPU}, WeightUse::mapped, ComputeDtype::bf16);
    ASSERT_FALSE(refused);
    EXPECT_THAT(refused.error().message,
                AllOf(HasSubstr("/teacher/placement: weights can be shared only as they are"), HasSubstr("float32"),
                      HasSubstr("the arithmetic is bfloat16; set /teacher/dtype")));
}

INSTANTIATE_TEST_SUITE_P(Heads, Placement, testing::Bool(),
                         [](const auto& info) { return info.param ? "Tied" : "Untied"; });

}  // namespace
}  // namespace distilld::models
