#pragma once

#include <cstddef>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <new>
#include <span>
#include <utility>
#include <vector>

namespace distilld {

/// Bytes of a response, or of what is made of one. Grows without zero-filling, and kPadding further bytes may always be
/// read behind the end, as simdjson asks. Aligned as malloc aligns. A large one has pages of its own: malloc would put
/// bodies and what is made of them side by side, and could not give back the ones between the others.
class BodyBuffer {
  public:
    static constexpr std::size_t kPadding = 64;

    BodyBuffer() = default;
    BodyBuffer(const BodyBuffer&) = delete;
    BodyBuffer& operator=(const BodyBuffer&) = delete;
    ~BodyBuffer() { release(); }

    /// Makes room for `capacity` bytes; keeps the content. Throws bad_alloc.
    void reserve(std::size_t capacity);
    /// Makes it empty, with room for `capacity` bytes and little more: memory that it has is given back rather than
    /// kept beside a small content. Throws bad_alloc.
    void start(std::size_t capacity);
    /// Gives back room that the content does not need, when that is much.
    void trim();
    void resize(std::size_t size) {
        reserve(size);
        size_ = size;
    }
    void clear() noexcept { size_ = 0; }

    [[nodiscard]] std::byte* data() noexcept { return data_; }
    [[nodiscard]] const std::byte* data() const noexcept { return data_; }
    [[nodiscard]] std::size_t size() const noexcept { return size_; }
    [[nodiscard]] std::size_t capacity() const noexcept { return capacity_; }
    [[nodiscard]] std::span<const std::byte> bytes() const noexcept { return {data_, size_}; }

    /// Room that no content needs and that is not given back.
    static constexpr std::size_t kSlack = std::size_t{64} << 10U;  // not worth a system call

  private:
    void allocate(std::size_t capacity);
    void release() noexcept;

    std::byte* data_ = nullptr;
    std::size_t mapped_ = 0;  // bytes of its own pages; 0 = it is malloc's
    std::size_t size_ = 0;
    std::size_t capacity_ = 0;
};

/// Lends buffers and takes them back when their last owner lets go, so that large bodies meet pages that the process
/// already has. Any thread. A buffer may outlive the pool.
class BufferPool {
  public:
    /// Keeps at most `max_idle_bytes` in buffers that nobody uses: those that were used last.
    explicit BufferPool(std::size_t max_idle_bytes = std::size_t{256} << 20U);

    /// An empty buffer, for about `size` bytes where that is known (0 = it is not): one that is idle with room for them
    /// and little more, if there is one.
    [[nodiscard]] std::shared_ptr<BodyBuffer> acquire(std::size_t size = 0);

    [[nodiscard]] std::size_t idle_count() const;

  private:
    struct Shared {
        explicit Shared(std::size_t limit) : max_idle_bytes(limit) {}
        mutable std::mutex mutex;
        std::size_t max_idle_bytes;
        std::size_t idle_bytes = 0;
        std::vector<std::unique_ptr<BodyBuffer>> idle;  // the one used last is the last
        void give_back(std::unique_ptr<BodyBuffer> buffer) noexcept;
    };
    std::shared_ptr<Shared> shared_;
};

}  // namespace distilld
