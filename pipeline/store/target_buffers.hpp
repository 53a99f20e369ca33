#pragma once

#include <cstddef>
#include <memory>

namespace distilld {

/// Memory for targets that is used again when the last owner lets go of it: a fresh page costs more than what is copied
/// into it. Keeps at most `max_kept_bytes` that nobody uses. Any thread; buffers may outlive it.
class TargetBuffers {
  public:
    explicit TargetBuffers(std::size_t max_kept_bytes = std::size_t{256} << 20U);

    /// At least `bytes` bytes, aligned to 64, of any content.
    [[nodiscard]] std::shared_ptr<std::byte> take(std::size_t bytes);

  private:
    struct Kept;
    std::shared_ptr<Kept> kept_;
};

}  // namespace distilld
