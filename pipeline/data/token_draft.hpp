#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>

#include "base/error.hpp"

namespace distilld {

/// A folder of tokens while they are read: made under a temporary name beside the one that it is to have, once there
/// are enough of them, and given up, with a warning, when it cannot be written or takes more than half of the space
/// that was free. One thread.
class TokenDraft {
  public:
    using Warn = std::function<void(const std::string&)>;

    /// Becomes `target`, whose parents need not be there. Nothing is written before `min_bytes` were counted.
    TokenDraft(std::filesystem::path target, std::uint64_t min_bytes, Warn warn);
    /// Removes what was not committed; what is mapped of it stays readable.
    ~TokenDraft();
    TokenDraft(const TokenDraft&) = delete;
    TokenDraft& operator=(const TokenDraft&) = delete;

    /// So many bytes of tokens were read.
    void count(std::uint64_t bytes) noexcept { counted_ += bytes; }

    /// Tokens belong into files of folder(), which this makes; false: into memory.
    [[nodiscard]] bool takes_files();

    /// Before so many bytes are written to one of them. False: it is given up.
    [[nodiscard]] bool takes(std::uint64_t bytes);

    void give_up(const std::string& why);
    [[nodiscard]] bool is_given_up() const noexcept { return state_ == State::given_up; }

    [[nodiscard]] const std::filesystem::path& folder() const noexcept { return folder_; }
    [[nodiscard]] const std::filesystem::path& target() const noexcept { return target_; }

    /// Writes the index, which makes it whole, and gives it its name, in place of what has it. Call once, last. False:
    /// it was given up.
    [[nodiscard]] bool commit(const std::string& index);

  private:
    enum class State { waiting, open, given_up, committed };

    [[nodiscard]] Result<void> make_folder();
    [[nodiscard]] Result<void> rename(const std::string& index);
    void remove() noexcept;

    std::filesystem::path target_;
    std::filesystem::path folder_;
    std::filesystem::path first_made_;  ///< the topmost folder that had to be made; empty: none
    std::uint64_t min_bytes_;
    Warn warn_;
    State state_ = State::waiting;
    std::uint64_t counted_ = 0;
    std::uint64_t written_ = 0;
    std::uint64_t max_written_ = 0;
};

}  // namespace distilld
