#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>

#include "base/descriptor.hpp"
#include "base/error.hpp"
#include "base/mapped_file.hpp"

namespace distilld {

/// The file by which a folder of tokens shows that it is whole.
inline constexpr const char* kTokenIndex = "index.json";

/// A folder of tokens while they are read, under a temporary name beside the one that it is to have. Takes no more than
/// half of the space that was free. After an error, which stands in failure() too, nothing more may be written. One
/// thread.
class TokenDraft {
  public:
    /// Becomes `target`, whose parents need not be there. Nothing is made before something is written.
    explicit TokenDraft(std::filesystem::path target);
    /// Removes what was not committed; what is mapped of it stays readable.
    ~TokenDraft();
    TokenDraft(const TokenDraft&) = delete;
    TokenDraft& operator=(const TokenDraft&) = delete;

    [[nodiscard]] const std::filesystem::path& target() const noexcept { return target_; }
    [[nodiscard]] const std::optional<std::string>& failure() const noexcept { return failure_; }

    /// Appends to the file of this name, which is made where `file` is not open yet.
    [[nodiscard]] Result<void> write(Descriptor& file, const std::string& name, std::span<const std::byte> bytes);

    /// What was written to it.
    [[nodiscard]] Result<MappedFile> map(const std::string& name);

    /// The same, once it is durable.
    [[nodiscard]] Result<MappedFile> seal(const Descriptor& file, const std::string& name);

    /// Writes the index, which makes the folder whole, and gives it its name, in place of what has it. Call once, last.
    [[nodiscard]] Result<void> commit(const std::string& index);

  private:
    Error failed(Error error);
    [[nodiscard]] Result<void> make_folder();
    [[nodiscard]] Result<void> rename(const std::string& index);

    std::filesystem::path target_;
    std::filesystem::path folder_;
    std::filesystem::path first_made_;   ///< the topmost folder that had to be made; empty: none
    std::optional<std::uint64_t> room_;  ///< bytes that may still be written; nothing: there is no folder yet
    std::optional<std::string> failure_;
    bool committed_ = false;
};

}  // namespace distilld
