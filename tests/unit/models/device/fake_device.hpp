#pragma once

#include <torch/types.h>

#include <cstdint>

/// A device that is not the CPU, for machines without one. Its memory cannot be read by the host: an access ends the
/// process. Its operations are the CPU's, by libtorch's fallback, each over copies of what it takes. What is copied
/// from page-locked memory without waiting runs as late as it may: when another stream or the host waits for an event
/// that was recorded behind it. So what forgets to wait reads garbage, or copies what has been written over. Streams,
/// events and threads of autograd are as on a GPU.
///
/// A program that links this has it, under the name fake:0.
namespace distilld::test {

[[nodiscard]] torch::Device fake_device();

/// What the host asked of the device since the last reset().
struct FakeDeviceCounts {
    std::uint64_t copies_to_host = 0;       ///< for each of which it waited
    std::uint64_t waited_copies_to = 0;     ///< copies to the device that it waited for
    std::uint64_t copies_behind = 0;        ///< those that it did not
    std::uint64_t pinned_allocations = 0;   ///< of page-locked memory
    std::uint64_t synchronized_events = 0;  ///< waits of the host for an event
    std::uint64_t blocked_streams = 0;      ///< waits of a stream for one
    std::uint64_t recorded_tensors = 0;     ///< tensors that a second stream was said to use
};
[[nodiscard]] FakeDeviceCounts fake_device_counts();
void reset_fake_device_counts();

/// Of copies that were asked for, how many have not run.
[[nodiscard]] std::uint64_t fake_device_copies_pending();

/// From now on the device has no more memory than it has given out and `bytes`; 0: it has.
void limit_fake_device_memory(std::uint64_t bytes);

}  // namespace distilld::test
