#include "models/training/staging_ring.hpp"

#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <utility>
#include <vector>

namespace distilld::models {
namespace {

using torch::Tensor;

constexpr std::int64_t kAlignment = 64;  ///< bytes; of every element type, and of a line of the processor's cache

/// By libtorch's interface for all devices, so that a build without CUDA compiles it too.
class DeviceCopies final : public StagedCopies {
  public:
    explicit DeviceCopies(c10::DeviceType type) : done_(std::make_shared<c10::Event>(type)) {}

    void add(Tensor tensor) { tensors_.push_back(std::move(tensor)); }
    void close(const c10::Stream& stream) { done_->record(stream); }
    /// Not the tensors: these are the micro-batch's.
    [[nodiscard]] std::shared_ptr<const c10::Event> done() const { return done_; }

    void use() const override {
        if (tensors_.empty()) {
            return;
        }
        const c10::Device device = tensors_.front().device();
        const c10::Stream consumer = c10::impl::VirtualGuardImpl(device.type()).getStream(device);
        done_->block(consumer);
        for (const Tensor& tensor : tensors_) {
            tensor.record_stream(consumer);
        }
    }

  private:
    std::shared_ptr<c10::Event> done_;
    std::vector<Tensor> tensors_;
};

/// Blocks of page-locked memory, of which pieces are cut.
class Slot {
  public:
    void begin() {
        wait();
        // What needed several blocks finds one of their size the next time.
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
    /// Until the device has read all of it.
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
    std::int64_t used_ = 0;   // of the last block
    std::int64_t taken_ = 0;  // of all
    std::shared_ptr<const c10::Event> copied_;
};

class DeviceStagingRing final : public StagingRing {
  public:
    explicit DeviceStagingRing(const torch::Device& device)
        : device_(device), stream_(c10::impl::VirtualGuardImpl(device.type()).getNewStream(device)) {}

    ~DeviceStagingRing() override {
        try {
            for (Slot& slot : slots_) {
                slot.wait();  // the device still reads them
            }
        } catch (const std::exception&) {
            // The device is gone, and reads no more. A destructor does not throw.
        }
    }
    DeviceStagingRing(const DeviceStagingRing&) = delete;
    DeviceStagingRing& operator=(const DeviceStagingRing&) = delete;

    void begin() override {
        if (copies_) {
            static_cast<void>(end());  // of a micro-batch that was refused half way
        }
        current_ = (current_ + 1) % slots_.size();
        slots_[current_].begin();
        copies_ = std::make_shared<DeviceCopies>(device_.type());
    }

    Tensor host(at::IntArrayRef sizes, torch::ScalarType type) override { return slots_[current_].piece(sizes, type); }

    Tensor to_device(const Tensor& piece) override {
        // The memory is the copying stream's, so that the copy waits for no computing.
        const c10::StreamGuard guard(stream_);
        Tensor copy = torch::empty(piece.sizes(), torch::TensorOptions().dtype(piece.scalar_type()).device(device_));
        copy.copy_(piece, /*non_blocking=*/true);
        copies_->add(copy);
        return copy;
    }

    std::shared_ptr<const StagedCopies> end() override {
        copies_->close(stream_);
        slots_[current_].close(copies_->done());
        return std::exchange(copies_, nullptr);
    }

  private:
    torch::Device device_;
    c10::Stream stream_;
    std::array<Slot, 2> slots_;
    std::size_t current_ = 0;
    std::shared_ptr<DeviceCopies> copies_;  // since begin()
};

}  // namespace

std::unique_ptr<StagingRing> make_staging_ring(const torch::Device& device) {
    return std::make_unique<DeviceStagingRing>(device);
}

}  // namespace distilld::models
