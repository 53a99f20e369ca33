#include "models/network/device.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "models/network/effective_dtype.hpp"

namespace distilld::models {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

constexpr CudaDevices kNotBuilt{false, 0};
constexpr CudaDevices kNoneFound{true, 0};
constexpr CudaDevices kTwo{true, 2};

std::string problem(std::string_view text, const CudaDevices& cuda) {
    const auto device = resolve_device(text, cuda);
    if (device) {
        return "no error: " + device->str();
    }
    EXPECT_EQ(device.error().kind, ErrorKind::invalid_input);
    EXPECT_THAT(device.error().message, StartsWith("/student/device: is \"" + std::string(text) + "\""));
    return device.error().message;
}

TEST(ResolveDevice, AutoTakesTheFirstCudaDeviceThatIsThere) {
    EXPECT_EQ(resolve_device("auto", kNotBuilt).value(), torch::Device("cpu"));
    EXPECT_EQ(resolve_device("auto", kNoneFound).value(), torch::Device("cpu"));
    EXPECT_EQ(resolve_device("auto", kTwo).value(), torch::Device("cuda:0"));
    EXPECT_EQ(resolve_device("auto").value(), resolve_device("auto", cuda_devices()).value());
}

TEST(ResolveDevice, TakesWhatIsNamed) {
    EXPECT_EQ(resolve_device("cpu", kTwo).value(), torch::Device("cpu"));
    EXPECT_EQ(resolve_device("cuda", kTwo).value(), torch::Device("cuda:0"));
    EXPECT_EQ(resolve_device("cuda:0", kTwo).value(), torch::Device("cuda:0"));
    EXPECT_EQ(resolve_device("cuda:1", kTwo).value(), torch::Device("cuda:1"));
}

TEST(DeviceOfRank, DistributesRanksOverTheGpusUnlessOneIsNamed) {
    EXPECT_EQ(device_of_rank("auto", 0, kTwo), "cuda:0");
    EXPECT_EQ(device_of_rank("cuda", 1, kTwo), "cuda:1");
    EXPECT_EQ(device_of_rank("auto", 2, kTwo), "cuda:0");
    EXPECT_EQ(device_of_rank("cuda:0", 1, kTwo), "cuda:0");
    EXPECT_EQ(device_of_rank("cpu", 1, kTwo), "cpu");
    EXPECT_EQ(device_of_rank("auto", 1, kNoneFound), "auto");
}

TEST(DeviceName, IsThatOfTheDeviceItselfAndNeverAuto) {
    EXPECT_EQ(device_name("cpu").value(), "cpu");
    EXPECT_EQ(device_name("auto").value(), resolve_device("auto").value().is_cpu() ? "cpu" : "cuda:0");
    EXPECT_THAT(device_name("gpu").error().message, StartsWith("/student/device: is \"gpu\""));
}

TEST(ResolveDevice, RefusesWhatIsNotThereOrNotUnderstood) {
    EXPECT_THAT(problem("cuda", kNotBuilt), HasSubstr("this build has no CUDA"));
    EXPECT_THAT(problem("cuda:1", kNotBuilt), HasSubstr("this build has no CUDA"));
    EXPECT_THAT(problem("cuda", kNoneFound), HasSubstr("libtorch finds 0 CUDA devices"));
    EXPECT_THAT(problem("cuda:2", kTwo), HasSubstr("libtorch finds 2 CUDA devices"));
    for (const char* text : {"", "gpu", "cuda:", "cuda:-1", "cuda:one", "cuda:1x", "cuda1", "CPU", "cuda: 1",
                             "cuda:99999999999999999999"}) {
        EXPECT_THAT(problem(text, kTwo), HasSubstr("auto, cpu, cuda or cuda:N is expected"));
    }
}

}  // namespace
}  // namespace distilld::models
