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
    ~SpaceClaim() { space_->give_back(held_); }
    SpaceClaim(const SpaceClaim&) = delete;
    SpaceClaim& operator=(const SpaceClaim&) = delete;

    /// Room for the next bytes of the file, of which some may be held by now. False: there is none.
    [[nodiscard]] bool use(std::uint64_t bytes);
    /// Room for a file of so many bytes at least, before they come, so that two uploads do not begin where one has
    /// room.
    [[nodiscard]] bool reserve(std::uint64_t bytes);
    /// What was used stays taken; whoever removes the file gives it back.
    void keep();

  private:
    const std::shared_ptr<UploadSpace> space_;
    std::uint64_t held_ = 0;
    std::uint64_t used_ = 0;
};

}  // namespace distilld::openai
