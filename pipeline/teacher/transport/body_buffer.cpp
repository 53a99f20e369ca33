#include "pipeline/teacher/transport/body_buffer.hpp"

namespace distilld {

void BodyBuffer::allocate(std::size_t capacity) {
    if (size_ == 0) {
        data_.reset();  // stale bytes are not worth a copy
        capacity_ = 0;
    }
    // Large blocks are moved by their page tables: the old and the new never lie in memory both.
    void* fresh = std::realloc(data_.get(), capacity + kPadding);
    if (fresh == nullptr) {
        throw std::bad_alloc();
    }
    static_cast<void>(data_.release());
    data_.reset(static_cast<std::byte*>(fresh));
    capacity_ = capacity;
}

void BodyBuffer::reserve(std::size_t capacity) {
    if (capacity > capacity_ || !data_) {
        allocate(capacity);
    }
}

void BodyBuffer::start(std::size_t capacity) {
    size_ = 0;
    if (capacity > capacity_ || !data_ || capacity_ > 2 * capacity + kSlack) {
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
    const std::lock_guard lock(mutex);
    if (buffer->capacity() == 0 || buffer->capacity() > max_idle_bytes - idle_bytes) {
        return;
    }
    try {
        const std::size_t capacity = buffer->capacity();
        idle.push_back(std::move(buffer));
        idle_bytes += capacity;
    } catch (const std::bad_alloc&) {
        // Not kept then.
    }
}

std::shared_ptr<BodyBuffer> BufferPool::acquire() {
    std::unique_ptr<BodyBuffer> buffer;
    {
        const std::lock_guard lock(shared_->mutex);
        if (!shared_->idle.empty()) {
            buffer = std::move(shared_->idle.back());
            shared_->idle.pop_back();
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
