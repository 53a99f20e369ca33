#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "pipeline/data/dataset.hpp"
#include "pipeline/data/mixed_dataset.hpp"
#include "pipeline/data/row_builder.hpp"
#include "pipeline/data/token_draft.hpp"

namespace distilld {

/// The rows of a dataset by part, and their order if there are several parts.
struct DatasetRows {
    std::vector<BuiltRows> parts;
    std::vector<PartRow> order;        ///< empty for one part
    std::uint64_t documents_read = 0;  ///< 0 for cached tokens
};

/// The prefix of the files of what a teacher reads in place of part `part` of `parts`.
[[nodiscard]] inline std::string teacher_part(std::size_t part, std::size_t parts) {
    return std::to_string(parts + part);
}

/// Caches the tokens of datasets in a folder. Each dataset has a subfolder named by everything that determines its
/// tokens: the files (name, size, times, inode), their reader, and how they are cut. It has, per part, the files N.ids,
/// N.labels (if they are not the ids) and N.rows, all of little-endian values, the same for what the teachers read
/// instead (teacher_part()); for several parts the file `order`; and index.json, which describes them and has their
/// checksums and its own. One thread.
class TokenCache {
  public:
    using Tell = std::function<void(const std::string&)>;

    /// Minimum bytes of data for a cache: less is read quickly.
    static constexpr std::uint64_t kMinBytes = 1U << 20;

    /// `reader` identifies all else that tokens depend on: tokenizer, program.
    TokenCache(std::filesystem::path folder, std::string reader, Tell on_info, Tell on_warning,
               std::uint64_t min_bytes = kMinBytes);

    /// The folder of a dataset's tokens; nullopt if a file is missing or is a pipe.
    [[nodiscard]] std::optional<std::filesystem::path> place_of(std::span<const std::filesystem::path> files,
                                                                const DatasetOptions& options) const;

    /// The cached tokens, mapped; nullopt if missing, or (with a warning) damaged.
    [[nodiscard]] std::optional<DatasetRows> open(const std::filesystem::path& place, const std::string& what);

    /// A draft for the tokens of these files; null if there is too little data.
    [[nodiscard]] std::unique_ptr<TokenDraft> make_draft(const std::filesystem::path& place,
                                                         std::span<const std::filesystem::path> files) const;

    /// Keeps the tokens in the files of `draft`. `what` names the files, for the log.
    void keep(TokenDraft& draft, const DatasetRows& rows, const std::string& what);

    /// Warns that the tokens cannot be kept.
    void warn_of_failure(const TokenDraft& draft) const;

    /// Warns that the files changed while they were read.
    void warn_of_change(const std::string& what) const;

    /// Removes tokens that this cache has neither opened nor kept, such as those of changed files. No other process may
    /// be reading into the folder. Files with other names stay: the folder may have another use.
    void sweep() const;

  private:
    [[nodiscard]] static Result<DatasetRows> read(const std::filesystem::path& place);

    std::filesystem::path folder_;
    std::string reader_;
    Tell on_info_;
    Tell on_warning_;
    std::uint64_t min_bytes_;
    std::vector<std::filesystem::path> used_;
};

}  // namespace distilld
