#pragma once

#include <filesystem>
#include <string>

#include "base/error.hpp"

namespace distilld {

/// SHA-256 over the pairs of id and token, by id: the vocabulary and the added tokens. A teacher gets ids, never text,
/// so tokenizers with equal hashes agree on requests and answers. The rest of a tokenizer.json does not count: merges,
/// normalizers and pre-tokenizers are written differently by each version of the libraries, and only decide how a text
/// is split. Works for any type of model (BPE, Unigram, WordPiece, WordLevel), even if we cannot read text with it.
/// Empty if the folder has no tokenizer.json. Errors name the file.
[[nodiscard]] Result<std::string> tokenizer_hash_of(const std::filesystem::path& folder);

/// The same for the byte tokenizer, without a file.
[[nodiscard]] std::string byte_tokenizer_hash();

/// Whether the folder's tokenizer.json is the byte tokenizer's, however it is formatted. False if it cannot be read.
[[nodiscard]] bool is_byte_tokenizer(const std::filesystem::path& folder);

}  // namespace distilld
