#pragma once

#include <filesystem>
#include <string>

#include "base/error.hpp"

namespace distilld {

/// SHA-256 of which id stands for which token: the pairs of the vocabulary and of the added tokens, by id. A teacher is
/// given ids and never text, so two tokenizers with one hash mean the same by what a teacher is asked and by what it
/// answers. Nothing else of a tokenizer.json counts: how merges, normalizers and pre-tokenizers are written differs
/// from one version of the libraries to the next, and they decide only how a text is cut. Any type of model (BPE,
/// Unigram, WordPiece, WordLevel), also one that we cannot read text with. Empty: the folder has no tokenizer.json.
/// Errors name the file.
[[nodiscard]] Result<std::string> tokenizer_hash_of(const std::filesystem::path& folder);

/// The same of the byte tokenizer, without a file.
[[nodiscard]] std::string byte_tokenizer_hash();

/// Whether the folder's tokenizer.json is that of the byte tokenizer, however it is formatted. False: it cannot be
/// read.
[[nodiscard]] bool is_byte_tokenizer(const std::filesystem::path& folder);

}  // namespace distilld
