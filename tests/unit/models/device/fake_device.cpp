#include "tests/unit/models/device/fake_device.hpp"

#include <ATen/EmptyTensor.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <ATen/native/CPUFallback.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/unfold_native.h>
#include <ATen/ops/view_native.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/library.h>
#include <torch/utils.h>

#include <algorithm>
#include <array>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "tests/unit/models/device/guarded_memory.hpp"

namespace distilld::test {
namespace {

using torch::Tensor;

constexpr c10::DeviceType kType = c10::DeviceType::PrivateUse1;

/// Streams by number; 0 is the default one, on which everything runs at once.
class Streams {
  public:
    c10::StreamId make() {
        const std::scoped_lock lock(mutex_);
        return ++last_;
    }
    void push(c10::StreamId stream, std::function<void()> work) {
        const std::scoped_lock lock(mutex_);
        Queue& queue = queues_[stream];
        queue.waiting.push_back(std::move(work));
        ++queue.pushed;
    }
    std::uint64_t pushed(c10::StreamId stream) {
        const std::scoped_lock lock(mutex_);
        return queues_[stream].pushed;
    }
    /// The first `count` works of the stream.
    void run_to(c10::StreamId stream, std::uint64_t count) {
        const std::scoped_lock lock(mutex_);
        Queue& queue = queues_[stream];
        for (; queue.run < count; ++queue.run) {
            queue.waiting.front()();
            queue.waiting.pop_front();
        }
    }
    std::uint64_t pending() {
        const std::scoped_lock lock(mutex_);
        std::uint64_t count = 0;
        for (const auto& [stream, queue] : queues_) {
            count += queue.waiting.size();
        }
        return count;
    }

  private:
    struct Queue {
        std::deque<std::function<void()>> waiting;
        std::uint64_t pushed = 0;
        std::uint64_t run = 0;
    };
    std::recursive_mutex mutex_;
    std::map<c10::StreamId, Queue> queues_;
    c10::StreamId last_ = 0;
};

struct FakeEvent {
    c10::StreamId stream = 0;
    std::uint64_t position = 0;
};

struct State {
    std::mutex mutex;
    FakeDeviceCounts counts;
    Streams streams;
};

State& state() {
    static auto* const kept = new State;  // threads of autograd outlive main()
    return *kept;
}

void count(std::uint64_t FakeDeviceCounts::* which) {
    const std::scoped_lock lock(state().mutex);
    ++(state().counts.*which);
}

thread_local c10::StreamId current_stream = 0;
thread_local int in_fallback = 0;

struct Guard final : c10::impl::DeviceGuardImplInterface {
    Guard() = default;
    explicit Guard(c10::DeviceType /*type*/) {}
    c10::DeviceType type() const override { return kType; }
    c10::Device exchangeDevice(c10::Device) const override { return {kType, 0}; }
    c10::Device getDevice() const override { return {kType, 0}; }
    void setDevice(c10::Device) const override {}
    void uncheckedSetDevice(c10::Device) const noexcept override {}
    c10::DeviceIndex deviceCount() const noexcept override { return 1; }
    c10::Stream getStream(c10::Device device) const override { return stream_of(device, current_stream); }
    c10::Stream getDefaultStream(c10::Device device) const override { return stream_of(device, 0); }
    c10::Stream getStreamFromGlobalPool(c10::Device device, bool) const override {
        return stream_of(device, state().streams.make());
    }
    c10::Stream getNewStream(c10::Device device, int) const override {
        return stream_of(device, state().streams.make());
    }
    c10::Stream exchangeStream(c10::Stream stream) const override {
        return stream_of(stream.device(), std::exchange(current_stream, stream.id()));
    }
    void record(void** event, const c10::Stream& stream, c10::DeviceIndex, c10::EventFlag) const override {
        if (*event == nullptr) {
            *event = new FakeEvent;
        }
        *static_cast<FakeEvent*>(*event) = {stream.id(), state().streams.pushed(stream.id())};
    }
    void block(void* event, const c10::Stream&) const override {
        count(&FakeDeviceCounts::blocked_streams);
        finish(event);
    }
    bool queryEvent(void*) const override { return false; }
    void synchronizeEvent(void* event) const override {
        count(&FakeDeviceCounts::synchronized_events);
        finish(event);
    }
    void destroyEvent(void* event, c10::DeviceIndex) const noexcept override { delete static_cast<FakeEvent*>(event); }
    bool queryStream(const c10::Stream&) const override { return true; }
    void synchronizeStream(const c10::Stream& stream) const override {
        state().streams.run_to(stream.id(), state().streams.pushed(stream.id()));
    }

  private:
    static c10::Stream stream_of(c10::Device device, c10::StreamId id) {
        return c10::Stream(c10::Stream::UNSAFE, device, id);
    }
    static void finish(void* event) {
        const auto* const at = static_cast<const FakeEvent*>(event);
        state().streams.run_to(at->stream, at->position);
    }
};

C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard);

struct Hooks final : at::PrivateUse1HooksInterface {
    bool isBuilt() const override { return true; }
    bool isAvailable() const override { return true; }
    bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
    c10::DeviceIndex deviceCount() const override { return 1; }
    void setCurrentDevice(c10::DeviceIndex) const override {}
    c10::DeviceIndex getCurrentDevice() const override { return 0; }
    c10::DeviceIndex exchangeDevice(c10::DeviceIndex) const override { return 0; }
    c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex) const override { return 0; }
    bool isPinnedPtr(const void* data) const override { return pinned_memory().holds(data); }
    c10::Allocator* getPinnedMemoryAllocator() const override {
        count(&FakeDeviceCounts::pinned_allocations);
        return &pinned_memory();
    }
};

const bool kHooked = [] {
    at::RegisterPrivateUse1HooksInterface(new Hooks);
    c10::register_privateuse1_backend("fake");
    return true;
}();

/// The same numbers as the host may touch them.
Tensor seen(const Tensor& tensor) {
    if (tensor.device().type() != kType) {
        return tensor;
    }
    const auto& storage = tensor.storage();
    const auto options = torch::TensorOptions().dtype(tensor.scalar_type());
    auto* const bytes = static_cast<char*>(device_memory().seen(storage.data_ptr().get())) +
                        tensor.storage_offset() * static_cast<std::int64_t>(tensor.element_size());
    return torch::from_blob(bytes, tensor.sizes(), tensor.strides(), options);
}

Tensor copy_from(const Tensor& from, const Tensor& to, bool non_blocking) {
    const torch::NoGradGuard no_grad;
    const bool behind =
        non_blocking && from.is_cpu() && pinned_memory().holds(from.const_data_ptr()) && current_stream != 0;
    if (behind) {
        count(&FakeDeviceCounts::copies_behind);
        state().streams.push(current_stream, [from, to] { seen(to).copy_(from); });
        return to;
    }
    if (in_fallback == 0 && from.device() != to.device()) {
        count(to.is_cpu() ? &FakeDeviceCounts::copies_to_host : &FakeDeviceCounts::waited_copies_to);
    }
    seen(to).copy_(seen(from));
    return to;
}

Tensor copy_from_and_resize(const Tensor& from, const Tensor& to) {
    if (from.sizes() != to.sizes()) {
        TORCH_CHECK(to.numel() == 0, "the fake device resizes what is empty alone");
        Tensor grown = torch::empty(from.sizes(), to.options());
        to.unsafeGetTensorImpl()->set_storage_keep_dtype(grown.storage());
        to.unsafeGetTensorImpl()->set_sizes_and_strides(grown.sizes(), grown.strides());
    }
    return copy_from(from, to, false);
}

Tensor empty(at::IntArrayRef size, std::optional<at::ScalarType> type, std::optional<at::Layout>,
             std::optional<at::Device>, std::optional<bool>, std::optional<at::MemoryFormat> format) {
    return at::detail::empty_generic(size, &device_memory(), c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
                                     type.value_or(torch::kFloat), format);
}

Tensor empty_strided(at::IntArrayRef size, at::IntArrayRef stride, std::optional<at::ScalarType> type,
                     std::optional<at::Layout>, std::optional<at::Device>, std::optional<bool>) {
    return at::detail::empty_strided_generic(size, stride, &device_memory(),
                                             c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
                                             type.value_or(torch::kFloat));
}

at::Scalar local_scalar(const Tensor& tensor) {
    count(&FakeDeviceCounts::copies_to_host);
    return seen(tensor).item();
}

void record_stream(Tensor&, c10::Stream stream) {
    if (stream.id() == 0) {
        count(&FakeDeviceCounts::recorded_tensors);
    }
}

/// Operations whose result is as large as its values say: the host waits to hear how large.
constexpr std::array<std::string_view, 8> kOfUnknownSize{
    "aten::_unique", "aten::_unique2",      "aten::unique_dim", "aten::unique_consecutive",
    "aten::nonzero", "aten::masked_select", "aten::bincount",   "aten::equal"};

void fall_back(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
    if (std::ranges::find(kOfUnknownSize, op.operator_name().name) != kOfUnknownSize.end()) {
        count(&FakeDeviceCounts::copies_to_host);
    }
    ++in_fallback;
    try {
        at::native::cpu_fallback(op, stack);
    } catch (...) {
        --in_fallback;
        throw;
    }
    --in_fallback;
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
    m.impl("empty.memory_format", &empty);
    m.impl("empty_strided", &empty_strided);
    m.impl("as_strided", &at::native::as_strided_tensorimpl);
    m.impl("view", &at::native::view);
    m.impl("unfold", &at::native::unfold);
    m.impl("_reshape_alias", &at::native::_reshape_alias);
    m.impl("_copy_from", &copy_from);
    m.impl("_copy_from_and_resize", &copy_from_and_resize);
    m.impl("_local_scalar_dense", &local_scalar);
    m.impl("record_stream", &record_stream);
}

TORCH_LIBRARY_IMPL(_, PrivateUse1, m) {
    m.fallback(torch::CppFunction::makeFromBoxedFunction<&fall_back>());
}

}  // namespace

torch::Device fake_device() {
    return {kType, 0};
}

FakeDeviceCounts fake_device_counts() {
    const std::scoped_lock lock(state().mutex);
    return state().counts;
}

void reset_fake_device_counts() {
    const std::scoped_lock lock(state().mutex);
    state().counts = {};
}

std::uint64_t fake_device_copies_pending() {
    return state().streams.pending();
}

void limit_fake_device_memory(std::uint64_t bytes) {
    device_memory().limit(bytes);
}

}  // namespace distilld::test
