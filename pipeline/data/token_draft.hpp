#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>

#include "base/error.hpp"
#include "base/files/descriptor.hpp"
#include "base/files/mapped_file.hpp"

namespace distilld {

/// The file that marks a folder of tokens as complete.
inline constexpr const char* kTokenIndex = "index.json";

/// A folder of tokens while they are read, under a temporary name next to its target. Takes at most half of the free
/// space. After an error, which failure() also has, nothing more may be written. One thread.
class TokenDraft {
  public:
    /// Becomes `target`; missing parent folders are created. Creates nothing before the first write.
    explicit TokenDraft(std::filesystem::path target);
    /// Removes an uncommitted draft; mapped files stay readable.
    ~TokenDraft();
    TokenDraft(const TokenDraft&) = delete;
    TokenDraft& operator=(const TokenDraft&) = delete;

    [[nodiscard]] const std::filesystem::path& target() const noexcept { return target_; }
    [[nodiscard]] const std::optional<std::string>& failure() const noexcept { return failure_; }

    /// Appends to the file of this name, and creates it if `file` is not open yet.
    [[nodiscard]] Result<void> write(Descriptor& file, const std::string& name, std::span<const std::byte> bytes);

    /// Maps what was written to the file.
    [[nodiscard]] Result<MappedFile> map(const std::string& name);

    /// The same, after making the file durable.
    [[nodiscard]] Result<MappedFile> seal(const Descriptor& file, const std::string& name);

    /// Writes the index, which completes the folder, and renames the folder to the target, which it replaces. Call
    /// once, last.
    [[nodiscard]] Result<void> commit(const std::string& index);

  private:
    Error failed(Error error);
    [[nodiscard]] Result<void> make_folder();
    [[nodiscard]] Result<void> rename(const std::string& index);

    std::filesystem::path target_;
    std::filesystem::path folder_;
    std::filesystem::path first_made_;   ///< the topmost folder that was created; empty: none
    std::optional<std::uint64_t> room_;  ///< bytes that may still be written; nullopt: no folder yet
    std::optional<std::string> failure_;
    bool committed_ = false;
};

}  // namespace distilld
