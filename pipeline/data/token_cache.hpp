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

/// The rows of a dataset, part by part, and of several parts their order.
struct DatasetRows {
    std::vector<BuiltRows> parts;
    std::vector<PartRow> order;        ///< of one part: empty
    std::uint64_t documents_read = 0;  ///< 0 of what was kept
};

/// Tokens of datasets in a folder, each dataset in a folder of its own there that is named by what decides the tokens:
/// the files (name, size, times, inode), what reads them, and how they are cut. Such a folder has for each part the
/// files N.ids, N.labels (where they are not the ids) and N.rows, each little-endian values, of several parts the file
/// `order`, and index.json, which says what is in them and has their checksums and its own. One thread.
class TokenCache {
  public:
    using Tell = std::function<void(const std::string&)>;

    /// Fewer bytes of data are read in a moment: their tokens are not worth a file.
    static constexpr std::uint64_t kMinBytes = 1U << 20;

    /// `reader` stands for all that tokens depend on beside the files and DatasetOptions: tokenizer, program.
    TokenCache(std::filesystem::path folder, std::string reader, Tell on_info, Tell on_warning,
               std::uint64_t min_bytes = kMinBytes);

    /// Where the tokens of a dataset belong. Nothing: a file is not there, or is a pipe, which is read but once.
    [[nodiscard]] std::optional<std::filesystem::path> place_of(std::span<const std::filesystem::path> files,
                                                                const DatasetOptions& options) const;

    /// What is kept there, mapped. Nothing: it is not there, or (with a warning) it is damaged.
    [[nodiscard]] std::optional<DatasetRows> open(const std::filesystem::path& place, const std::string& what);

    /// For the tokens of these files. Null: they are too little.
    [[nodiscard]] std::unique_ptr<TokenDraft> make_draft(const std::filesystem::path& place,
                                                         std::span<const std::filesystem::path> files) const;

    /// Keeps what was read into the files of `draft`. `what` names the files, for the log.
    void keep(TokenDraft& draft, const DatasetRows& rows, const std::string& what);

    /// What was read cannot be kept.
    void warn_of_failure(const TokenDraft& draft) const;

    /// The files are not those any more that were to be read.
    void warn_of_change(const std::string& what) const;

    /// Removes tokens that this has neither opened nor kept, such as those of files that have changed since. Nobody
    /// else may be reading into the folder. What has another name than tokens have stays: the folder may be somebody's.
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
