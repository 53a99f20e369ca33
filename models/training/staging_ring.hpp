#pragma once

#include <torch/torch.h>

#include <memory>

namespace distilld::models {

/// The copies of one micro-batch that are on their way to a device.
class StagedCopies {
  public:
    virtual ~StagedCopies() = default;
    /// From here on the calling thread's stream finds them done: the stream waits for them, the thread does not. What
    /// is freed while the stream still uses it is not given to others before. Any thread but one at a time.
    virtual void use() const = 0;
};

/// A ring of slots of host memory, in which micro-batches are put together for a device that copies beside its
/// computing. One thread at a time; copies run on a stream of the ring's own.
///
/// A slot is page-locked, without which a copy cannot run beside the thread that asked for it. It is as large as the
/// largest micro-batch that it has held and is written again only when its last copies are done, which wait for nothing
/// but the copies before them. Two slots serve any number of micro-batches in flight: one is copied, one is written.
class StagingRing {
  public:
    virtual ~StagingRing() = default;

    /// Takes the next slot, waiting until what it held is copied. What an earlier slot gave by host() is used up.
    virtual void begin() = 0;
    /// A piece of the slot, of any content.
    [[nodiscard]] virtual torch::Tensor host(at::IntArrayRef sizes, torch::ScalarType type) = 0;
    /// Begins to copy such a piece; what is returned is not to be read before use().
    [[nodiscard]] virtual torch::Tensor to_device(const torch::Tensor& piece) = 0;
    /// All copies since begin(). Outlives the ring.
    [[nodiscard]] virtual std::shared_ptr<const StagedCopies> end() = 0;
};

/// For a device with streams: not the CPU.
[[nodiscard]] std::unique_ptr<StagingRing> make_staging_ring(const torch::Device& device);

}  // namespace distilld::models
