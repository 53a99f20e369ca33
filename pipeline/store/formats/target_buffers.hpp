#pragma once

#include <cstddef>
#include <memory>

namespace distilld {

/// Reusable memory for targets, because a fresh page costs more than the copy into it. Keeps at most `max_kept_bytes`
/// of unused memory. Any thread; buffers may outlive it.
class TargetBuffers {
  public:
    explicit TargetBuffers(std::size_t max_kept_bytes = std::size_t{256} << 20U);

    /// At least `bytes` bytes, aligned to 64, uninitialised.
    [[nodiscard]] std::shared_ptr<std::byte> take(std::size_t bytes);

  private:
    struct Kept;
    std::shared_ptr<Kept> kept_;
};

}  // namespace distilld
