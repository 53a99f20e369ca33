#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>

namespace distilld::openai {

/// The bytes that uploaded files may take together. Any thread.
class UploadSpace {
  public:
    /// `taken`: by the files that are there, which may be more than the limit.
    UploadSpace(std::uint64_t limit, std::uint64_t taken) : limit_(limit), taken_(taken) {}

    /// Whether so many are free at the moment. None is taken.
    [[nodiscard]] bool has_room(std::uint64_t bytes);
    /// False: so many are not free, and none is taken.
    [[nodiscard]] bool take(std::uint64_t bytes);
    void give_back(std::uint64_t bytes);
    [[nodiscard]] std::uint64_t limit() const noexcept { return limit_; }

  private:
    const std::uint64_t limit_;
    std::mutex mutex_;
    std::uint64_t taken_;
};

/// What one upload has of it; given back at its end unless keep() was called. One thread at a time.
class SpaceClaim {
  public:
    explicit SpaceClaim(std::shared_ptr<UploadSpace> space) : space_(std::move(space)) {}
    ~SpaceClaim() { space_->give_back(used_); }
    SpaceClaim(const SpaceClaim&) = delete;
    SpaceClaim& operator=(const SpaceClaim&) = delete;

    /// Room for the next bytes of the file, which have come. False: there is none.
    [[nodiscard]] bool use(std::uint64_t bytes);
    /// Whether there is room for so many more now. They are not held: what is announced need never come.
    [[nodiscard]] bool has_room(std::uint64_t bytes) { return space_->has_room(bytes); }
    /// What was used stays taken; whoever removes the file gives it back.
    void keep() { used_ = 0; }

  private:
    const std::shared_ptr<UploadSpace> space_;
    std::uint64_t used_ = 0;
};

}  // namespace distilld::openai
