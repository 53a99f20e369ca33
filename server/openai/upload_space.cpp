#include "server/openai/upload_space.hpp"

#include <algorithm>

namespace distilld::openai {

bool UploadSpace::take(std::uint64_t bytes) {
    const std::lock_guard guard(mutex_);
    if (taken_ > limit_ || bytes > limit_ - taken_) {
        return false;
    }
    taken_ += bytes;
    return true;
}

void UploadSpace::give_back(std::uint64_t bytes) {
    const std::lock_guard guard(mutex_);
    taken_ -= std::min(taken_, bytes);
}

bool SpaceClaim::use(std::uint64_t bytes) {
    if (!reserve(used_ + bytes)) {
        return false;
    }
    used_ += bytes;
    return true;
}

bool SpaceClaim::reserve(std::uint64_t bytes) {
    if (bytes <= held_) {
        return true;
    }
    if (!space_->take(bytes - held_)) {
        return false;
    }
    held_ = bytes;
    return true;
}

void SpaceClaim::keep() {
    space_->give_back(held_ - used_);
    held_ = 0;
}

}  // namespace distilld::openai
