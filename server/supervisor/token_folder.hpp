#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "base/error.hpp"

namespace distilld {

/// A folder on a file system that machines share, with the tokens of workers there and what their scripts print. Only
/// our user can read it. Any thread.
class TokenFolder {
  public:
    /// Creates the folder if it is missing (0700). invalid_input if it is a link, or if another user owns or can read
    /// it.
    [[nodiscard]] static Result<TokenFolder> open(std::filesystem::path folder);

    /// Writes a file that only our user can read (0600), and returns its path.
    [[nodiscard]] Result<std::filesystem::path> keep(const std::string& name, std::string_view token) const;
    /// Removes what belongs to the name; nothing if it is missing.
    [[nodiscard]] Result<void> forget(const std::string& name) const;
    /// The file for the output of the script of that name.
    [[nodiscard]] std::filesystem::path log_of(const std::string& name) const { return folder_ / (name + ".log"); }

  private:
    explicit TokenFolder(std::filesystem::path folder) : folder_(std::move(folder)) {}
    [[nodiscard]] std::filesystem::path token_of(const std::string& name) const { return folder_ / (name + ".token"); }

    std::filesystem::path folder_;
};

}  // namespace distilld
