#include "server/openai/upload_space.hpp"

#include <algorithm>

namespace distilld::openai {

bool UploadSpace::has_room(std::uint64_t bytes) {
    const std::lock_guard guard(mutex_);
    return taken_ <= limit_ && bytes <= limit_ - taken_;
}

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
    if (!space_->take(bytes)) {
        return false;
    }
    used_ += bytes;
    return true;
}

}  // namespace distilld::openai
