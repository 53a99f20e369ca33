#include "net/body_buffer.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <iterator>

namespace distilld {

namespace {

constexpr std::size_t kMinMapped = std::size_t{256} << 10U;
constexpr std::size_t kPage = 4096;  // or a multiple of it: the kernel rounds up

}  // namespace

void BodyBuffer::release() noexcept {
    if (mapped_ != 0) {
        ::munmap(data_, mapped_);
    } else {
        std::free(data_);
    }
    data_ = nullptr;
    mapped_ = 0;
    capacity_ = 0;
}

void BodyBuffer::allocate(std::size_t capacity) {
    if (size_ == 0) {
        release();  // stale bytes are not worth a copy
    }
    const std::size_t needed = capacity + kPadding;
    const std::size_t mapped = needed < kMinMapped ? 0 : (needed + kPage - 1) / kPage * kPage;
    void* fresh = nullptr;
    if (data_ != nullptr && (mapped_ == 0) == (mapped == 0)) {
        // mremap moves pages by their tables: old and new never use memory both.
        fresh = mapped != 0 ? ::mremap(data_, mapped_, mapped, MREMAP_MAYMOVE) : std::realloc(data_, needed);
    } else {
        fresh = mapped != 0 ? ::mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)
                            : std::malloc(needed);
        if (data_ != nullptr && fresh != nullptr && fresh != MAP_FAILED) {
            std::memcpy(fresh, data_, std::min(size_, capacity));
            release();
        }
    }
    if (fresh == nullptr || fresh == MAP_FAILED) {
        throw std::bad_alloc();
    }
    data_ = static_cast<std::byte*>(fresh);
    mapped_ = mapped;
    capacity_ = capacity;
}

void BodyBuffer::reserve(std::size_t capacity) {
    if (capacity > capacity_ || data_ == nullptr) {
        allocate(capacity);
    }
}

void BodyBuffer::start(std::size_t capacity) {
    size_ = 0;
    if (capacity > capacity_ || data_ == nullptr || capacity_ > 2 * capacity + kSlack) {
        allocate(capacity);
    }
}

void BodyBuffer::trim() {
    if (capacity_ > size_ + size_ / 4 + kSlack && size_ > 0) {
        allocate(size_);
    }
}

BufferPool::BufferPool(std::size_t max_idle_bytes) : shared_(std::make_shared<Shared>(max_idle_bytes)) {}

void BufferPool::Shared::give_back(std::unique_ptr<BodyBuffer> buffer) noexcept {
    std::vector<std::unique_ptr<BodyBuffer>> dropped;  // freed after the lock is released
    const std::lock_guard lock(mutex);
    if (buffer->capacity() == 0 || buffer->capacity() > max_idle_bytes) {
        return;
    }
    try {
        const std::size_t capacity = buffer->capacity();
        idle.push_back(std::move(buffer));
        idle_bytes += capacity;
        while (idle_bytes > max_idle_bytes) {
            idle_bytes -= idle.front()->capacity();
            dropped.push_back(std::move(idle.front()));
            idle.erase(idle.begin());
        }
    } catch (const std::bad_alloc&) {
        // Not kept then.
    }
}

std::shared_ptr<BodyBuffer> BufferPool::acquire(std::size_t size) {
    const auto fits = [size](const std::unique_ptr<BodyBuffer>& one) {
        return size == 0 || (one->capacity() >= size && one->capacity() <= size + size / 4 + BodyBuffer::kSlack);
    };
    std::unique_ptr<BodyBuffer> buffer;
    {
        const std::lock_guard lock(shared_->mutex);
        const auto found = std::find_if(shared_->idle.rbegin(), shared_->idle.rend(), fits);
        if (found != shared_->idle.rend()) {
            buffer = std::move(*found);
            shared_->idle.erase(std::next(found).base());
            shared_->idle_bytes -= buffer->capacity();
        }
    }
    if (!buffer) {
        buffer = std::make_unique<BodyBuffer>();
    }
    buffer->clear();
    auto give_back = [shared = shared_](BodyBuffer* returned) {
        shared->give_back(std::unique_ptr<BodyBuffer>(returned));
    };
    return {buffer.release(), std::move(give_back)};
}

std::size_t BufferPool::idle_count() const {
    const std::lock_guard lock(shared_->mutex);
    return shared_->idle.size();
}

}  // namespace distilld
