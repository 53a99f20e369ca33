#pragma once

#include <c10/core/Allocator.h>
#include <c10/util/ThreadLocalDebugInfo.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>

namespace distilld::bench {

/// Counts the memory that libtorch's CPU allocator gives this thread and gets back.
class LiveBytes final : public c10::MemoryReportingInfoBase {
  public:
    void reportMemoryUsage(void* /*pointer*/, std::int64_t bytes, std::size_t /*allocated*/, std::size_t /*reserved*/,
                           c10::Device /*device*/) override {
        now_ += bytes;
        peak_ = std::max(peak_, now_);
    }
    [[nodiscard]] bool memoryProfilingEnabled() const override { return true; }
    [[nodiscard]] std::int64_t peak() const { return peak_; }

  private:
    std::int64_t now_ = 0;
    std::int64_t peak_ = 0;
};

/// Peak of libtorch's CPU memory that `work` adds, on this thread.
template <class Work>
std::int64_t peak_bytes_of(const Work& work) {
    const auto live = std::make_shared<LiveBytes>();
    const c10::DebugInfoGuard guard(c10::DebugInfoKind::PROFILER_STATE, live);
    work();
    return live->peak();
}

}  // namespace distilld::bench
