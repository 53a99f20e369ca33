#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/error.hpp"

namespace distilld::models {

/// The memory of a student's device, for the search of a batch size and for monitoring. One thread at a time, not
/// necessarily the compute thread. Torch-free header.
class DeviceMemory {
  public:
    virtual ~DeviceMemory() = default;
    /// Resets the peak.
    virtual void reset_peak() = 0;
    /// Peak bytes held by the process since then; 0 if unknown.
    [[nodiscard]] virtual std::uint64_t peak_bytes() = 0;
    /// Total bytes; 0 if unknown.
    [[nodiscard]] virtual std::uint64_t total_bytes() = 0;
    /// Bytes held by the process, without and with cached ones.
    [[nodiscard]] virtual std::uint64_t allocated_bytes() = 0;
    [[nodiscard]] virtual std::uint64_t reserved_bytes() = 0;
    /// Available bytes.
    [[nodiscard]] virtual std::uint64_t available_bytes() = 0;
};

/// `device` as in a spec's student.device. CPU: the process's resident memory; available is MemAvailable, or the rest
/// of the control group's limit if that is less. CUDA: the memory that libtorch's allocator has given out; available is
/// the device's free memory plus what the allocator keeps unused.
Result<std::unique_ptr<DeviceMemory>> make_device_memory(const std::string& device);

}  // namespace distilld::models
