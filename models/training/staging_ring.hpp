#pragma once

#include <c10/core/Event.h>
#include <c10/core/Stream.h>
#include <torch/types.h>

#include <cstddef>
#include <memory>
#include <vector>

namespace distilld::models {

/// Pending copies of one micro-batch to a device.
class StagedCopies {
  public:
    explicit StagedCopies(c10::DeviceType type) : done_(std::make_shared<c10::Event>(type)) {}

    /// Makes the calling thread's stream, not the thread, wait for the copies. Memory that is freed while the stream
    /// uses it is not reused before. Any thread, one at a time.
    void use() const;

  private:
    friend class StagingRing;

    std::shared_ptr<c10::Event> done_;
    std::vector<torch::Tensor> tensors_;
};

/// A ring of slots of host memory in which micro-batches are assembled, for a device that copies while it computes. One
/// thread at a time; copies run on the ring's own stream.
///
/// A slot is page-locked; otherwise a copy could not run concurrently with the thread that requested it. It is as large
/// as the largest micro-batch that it has held, and is reused only when its last copies are done, which wait only for
/// earlier copies. Two slots serve any number of micro-batches in flight: one is copied while the other is written.
class StagingRing {
  public:
    /// For a device with streams: not the CPU.
    explicit StagingRing(const torch::Device& device);
    ~StagingRing();
    StagingRing(const StagingRing&) = delete;
    StagingRing& operator=(const StagingRing&) = delete;

    /// Takes the next slot and waits until its old content is copied. Pieces from earlier host() calls become invalid.
    void begin();
    /// A piece of the slot, uninitialized.
    [[nodiscard]] torch::Tensor host(at::IntArrayRef sizes, torch::ScalarType type);
    /// Begins to copy such a piece; do not read the result before use().
    [[nodiscard]] torch::Tensor to_device(const torch::Tensor& piece);
    /// All copies since begin(). The result may outlive the ring.
    [[nodiscard]] std::shared_ptr<const StagedCopies> end();

  private:
    class Slot;
    static constexpr std::size_t kSlots = 2;

    torch::Device device_;
    c10::Stream stream_;
    std::unique_ptr<Slot[]> slots_;
    std::size_t current_ = 0;
    std::shared_ptr<StagedCopies> copies_;  // since begin()
};

}  // namespace distilld::models
