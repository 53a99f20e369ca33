#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>

#include "base/error.hpp"
#include "pipeline/data/dataset.hpp"
#include "pipeline/data/jsonl_document.hpp"

namespace distilld {

/// Takes a document: `number` counts the documents of all files, `read_share` is the share of the files' bytes read so
/// far, in (0, 1], or 0 if unknown. An error ends the reading, and gets the file and line of the document.
using TakeDocument = std::function<Result<void>(const Document& document, std::uint64_t number, double read_share)>;

/// Reads the documents of JSONL files, compressed or not, one after the other, and passes them to `take` on the calling
/// thread in their order, whatever `options.threads` is: one thread reads lines, that many parse and tokenize blocks of
/// them. Lines between reading and taking are bounded in bytes. Returns the first error in the order of the files; all
/// documents before it have been taken. Errors name file and line.
Result<void> read_documents(std::span<const std::filesystem::path> files, const Tokenizer* tokenizer,
                            const DatasetOptions& options, const TakeDocument& take);

}  // namespace distilld
