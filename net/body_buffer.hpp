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

/// Bytes of a response, or of what is made from one. Grows without zero-filling. kPadding further bytes are always
/// readable after the end, as simdjson requires. Aligned like malloc. A large buffer has pages of its own: malloc would
/// mix bodies with what is made of them, and could not return the memory between them.
class BodyBuffer {
  public:
    static constexpr std::size_t kPadding = 64;

    BodyBuffer() = default;
    BodyBuffer(const BodyBuffer&) = delete;
    BodyBuffer& operator=(const BodyBuffer&) = delete;
    ~BodyBuffer() { release(); }

    /// Makes room for `capacity` bytes; keeps the content. Throws bad_alloc.
    void reserve(std::size_t capacity);
    /// Empties it, with room for `capacity` bytes and little more: extra memory is given back. Throws bad_alloc.
    void start(std::size_t capacity);
    /// Gives back unused room, if that is much.
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

    /// Unused room that trim() and start() keep.
    static constexpr std::size_t kSlack = std::size_t{64} << 10U;  // not worth a system call

  private:
    void allocate(std::size_t capacity);
    void release() noexcept;

    std::byte* data_ = nullptr;
    std::size_t mapped_ = 0;  // bytes of its own pages; 0 = from malloc
    std::size_t size_ = 0;
    std::size_t capacity_ = 0;
};

/// Lends buffers and takes them back when the last owner releases them, so that large bodies reuse pages that the
/// process has. Any thread. A buffer may outlive the pool.
class BufferPool {
  public:
    /// Keeps at most `max_idle_bytes` in idle buffers: the most recently used ones.
    explicit BufferPool(std::size_t max_idle_bytes = std::size_t{256} << 20U);

    /// An empty buffer for about `size` bytes (0 = unknown): an idle one with room for them and little more, if there
    /// is one.
    [[nodiscard]] std::shared_ptr<BodyBuffer> acquire(std::size_t size = 0);

    [[nodiscard]] std::size_t idle_count() const;

  private:
    struct Shared {
        explicit Shared(std::size_t limit) : max_idle_bytes(limit) {}
        mutable std::mutex mutex;
        std::size_t max_idle_bytes;
        std::size_t idle_bytes = 0;
        std::vector<std::unique_ptr<BodyBuffer>> idle;  // most recently used last
        void give_back(std::unique_ptr<BodyBuffer> buffer) noexcept;
    };
    std::shared_ptr<Shared> shared_;
};

}  // namespace distilld
