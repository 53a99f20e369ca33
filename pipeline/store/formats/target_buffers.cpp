#include "pipeline/store/formats/target_buffers.hpp"

#include <mutex>
#include <new>
#include <utility>
#include <vector>

namespace distilld {
namespace {

constexpr std::align_val_t kAlignment{64};

struct Freed {
    void operator()(std::byte* bytes) const noexcept { ::operator delete(bytes, kAlignment); }
};

}  // namespace

struct TargetBuffers::Kept {
    struct Buffer {
        std::unique_ptr<std::byte, Freed> bytes;
        std::size_t size = 0;
    };

    explicit Kept(std::size_t limit) : max_bytes(limit) {}

    /// The smallest buffer that is large enough and at most twice as large.
    Buffer find(std::size_t size) {
        const std::lock_guard lock(mutex);
        auto best = free.end();
        for (auto at = free.begin(); at != free.end(); ++at) {
            if (at->size >= size && at->size / 2 <= size && (best == free.end() || at->size < best->size)) {
                best = at;
            }
        }
        if (best == free.end()) {
            return {};
        }
        Buffer found = std::move(*best);
        free.erase(best);
        bytes -= found.size;
        return found;
    }

    /// Frees the oldest buffers above the limit.
    void give_back(Buffer buffer) noexcept {
        try {
            const std::lock_guard lock(mutex);
            bytes += buffer.size;
            free.push_back(std::move(buffer));
            while (bytes > max_bytes) {
                bytes -= free.front().size;
                free.erase(free.begin());
            }
        } catch (const std::bad_alloc&) {
            // The buffer is freed with its owner.
        }
    }

    const std::size_t max_bytes;
    std::mutex mutex;
    std::vector<Buffer> free;
    std::size_t bytes = 0;
};

TargetBuffers::TargetBuffers(std::size_t max_kept_bytes) : kept_(std::make_shared<Kept>(max_kept_bytes)) {}

std::shared_ptr<std::byte> TargetBuffers::take(std::size_t bytes) {
    Kept::Buffer buffer = kept_->find(bytes);
    if (!buffer.bytes) {
        buffer.size = bytes;
        buffer.bytes.reset(static_cast<std::byte*>(::operator new(bytes, kAlignment)));
    }
    // Shared, because a batch's targets may outlive their reader.
    auto held = std::make_shared<Kept::Buffer>(std::move(buffer));
    std::byte* const first = held->bytes.get();
    return {first, [held, kept = kept_](std::byte*) { kept->give_back(std::move(*held)); }};
}

}  // namespace distilld
