#include "models/training/staging_ring.hpp"

#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <cstddef>
#include <cstdint>
#include <exception>
#include <utility>
#include <vector>

namespace distilld::models {

using torch::Tensor;

namespace {

constexpr std::int64_t kAlignment = 64;  ///< bytes; enough for every element type, and one cache line

}  // namespace

/// Blocks of page-locked memory, cut into pieces.
class StagingRing::Slot {
  public:
    void begin() {
        wait();
        // A micro-batch that needed several blocks finds one of their total size the next time.
        if (blocks_.size() > 1) {
            blocks_.clear();
            add_block(taken_);
        }
        used_ = 0;
        taken_ = 0;
    }

    Tensor piece(at::IntArrayRef sizes, torch::ScalarType type) {
        const auto element = static_cast<std::int64_t>(c10::elementSize(type));
        const std::int64_t bytes = c10::multiply_integers(sizes) * element;
        const std::int64_t padded = (bytes + kAlignment - 1) / kAlignment * kAlignment;
        if (blocks_.empty() || blocks_.back().numel() - used_ < padded) {
            add_block(padded);
            used_ = 0;
        }
        const Tensor cut = blocks_.back().narrow(0, used_, bytes).view(type).view(sizes);
        used_ += padded;
        taken_ += padded;
        return cut;
    }

    void close(std::shared_ptr<const c10::Event> copied) { copied_ = std::move(copied); }
    /// Waits until the device has read the whole slot.
    void wait() {
        if (copied_) {
            std::exchange(copied_, nullptr)->synchronize();
        }
    }

  private:
    void add_block(std::int64_t bytes) {
        blocks_.push_back(torch::empty({bytes}, torch::TensorOptions().dtype(torch::kByte).pinned_memory(true)));
    }

    std::vector<Tensor> blocks_;
    std::int64_t used_ = 0;   // bytes of the last block
    std::int64_t taken_ = 0;  // bytes of all blocks
    std::shared_ptr<const c10::Event> copied_;
};

void StagedCopies::use() const {
    if (tensors_.empty()) {
        return;
    }
    const c10::Device device = tensors_.front().device();
    // Uses libtorch's interface for all devices, so that a build without CUDA compiles it too.
    const c10::Stream consumer = c10::impl::VirtualGuardImpl(device.type()).getStream(device);
    done_->block(consumer);
    for (const Tensor& tensor : tensors_) {
        tensor.record_stream(consumer);
    }
}

StagingRing::StagingRing(const torch::Device& device)
    : device_(device),
      stream_(c10::impl::VirtualGuardImpl(device.type()).getNewStream(device)),
      slots_(std::make_unique<Slot[]>(kSlots)) {}

StagingRing::~StagingRing() {
    try {
        for (std::size_t slot = 0; slot < kSlots; ++slot) {
            slots_[slot].wait();  // the device may still be reading them
        }
    } catch (const std::exception&) {
        // The device is gone and no longer reads. A destructor must not throw.
    }
}

void StagingRing::begin() {
    if (copies_) {
        static_cast<void>(end());  // drops the copies of a micro-batch that was refused halfway
    }
    current_ = (current_ + 1) % kSlots;
    slots_[current_].begin();
    copies_ = std::make_shared<StagedCopies>(device_.type());
}

Tensor StagingRing::host(at::IntArrayRef sizes, torch::ScalarType type) {
    return slots_[current_].piece(sizes, type);
}

Tensor StagingRing::to_device(const torch::Tensor& piece) {
    // Allocates on the copying stream, so that the copy does not wait for computation.
    const c10::StreamGuard guard(stream_);
    Tensor copy = torch::empty(piece.sizes(), torch::TensorOptions().dtype(piece.scalar_type()).device(device_));
    copy.copy_(piece, /*non_blocking=*/true);
    copies_->tensors_.push_back(copy);
    return copy;
}

std::shared_ptr<const StagedCopies> StagingRing::end() {
    copies_->done_->record(stream_);
    slots_[current_].close(copies_->done_);
    return std::exchange(copies_, nullptr);
}

}  // namespace distilld::models
