#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/error.hpp"

namespace distilld::models {

/// The memory that a student computes in, as one who looks for a batch size, and one who watches, read it. One thread
/// at a time; those that change nothing beside the compute thread, too.
/// Torch-free header.
class DeviceMemory {
  public:
    virtual ~DeviceMemory() = default;
    /// The peak is counted anew from here.
    virtual void reset_peak() = 0;
    /// Most bytes that the process held at once since; 0 when the system does not say.
    [[nodiscard]] virtual std::uint64_t peak_bytes() = 0;
    /// Bytes that there are at all, whoever holds them; 0 when the system does not say.
    [[nodiscard]] virtual std::uint64_t total_bytes() = 0;
    /// Bytes that the process holds, and those with what it keeps for later.
    [[nodiscard]] virtual std::uint64_t allocated_bytes() = 0;
    [[nodiscard]] virtual std::uint64_t reserved_bytes() = 0;
    /// Bytes that can still be taken.
    [[nodiscard]] virtual std::uint64_t available_bytes() = 0;
};

/// `device` as in a spec's student.device. CPU: the process's resident memory; available is MemAvailable, or what is
/// left of the control group's limit when that is less. CUDA: what libtorch's allocator has given out; available is
/// what the device has free and what the allocator keeps unused.
Result<std::unique_ptr<DeviceMemory>> make_device_memory(const std::string& device);

}  // namespace distilld::models
