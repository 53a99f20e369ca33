#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "base/describes.hpp"
#include "base/error.hpp"
#include "pipeline/store/store_format.hpp"

namespace distilld {

/// What a store is of: DIR/manifest.json, written once, when the store is made. Which shards are sealed stands in
/// DIR/shards.jsonl (StoreShard).
struct StoreManifest {
    static constexpr std::uint32_t kVersion = 1;

    std::uint32_t version = kVersion;  ///< of the layout
    StoreFormat format = StoreFormat::packed;
    StoreValues values = StoreValues::f16;  ///< sampled: f16, which means nothing there
    std::uint32_t k = 0;                    ///< topk, packed: entries of a position; topp: at most; else 0
    double p = 0;                           ///< topp: the mass to reach, above 0, at most 1; else 0
    std::uint32_t samples = 0;              ///< sampled: draws of a position, 1 to 255; else 0
    std::uint64_t vocabulary = 0;           ///< ids are below it
    std::uint64_t rows = 0;                 ///< of the dataset
    std::uint32_t sequence_length = 0;      ///< columns of a batch at most
    std::uint32_t shard_rows = 0;           ///< rows [i·R, (i+1)·R) are shard i; 0 when a store is made: chosen by size
    double temperature = 1;                 ///< what the values are at; always 1
    std::string dataset_hash;               ///< Dataset::hash()
    std::string tokenizer_hash;             ///< of the tokenizer that made the ids; empty = ready-made ids
    std::string teacher;                    ///< its fingerprint (teacher_fingerprint()); empty = not known
    std::string teacher_name;               ///< for people; not compared
    std::string teacher_tokenizer;          ///< hash of the teacher's tokenizer; empty = not known. Not compared
    std::string generator;                  ///< program and version that made it; not compared

    [[nodiscard]] std::uint64_t shard_count() const noexcept {
        return shard_rows == 0 ? 0 : (rows + shard_rows - 1) / shard_rows;
    }
    [[nodiscard]] std::uint64_t shard_of(std::uint64_t row) const noexcept { return row / shard_rows; }
};

BOOST_DESCRIBE_STRUCT(StoreManifest, (),
                      (version, format, values, k, p, samples, vocabulary, rows, sequence_length, shard_rows,
                       temperature, dataset_hash, tokenizer_hash, teacher, teacher_name, teacher_tokenizer, generator))

/// A sealed shard: one line of DIR/shards.jsonl.
struct StoreShard {
    std::uint64_t shard = 0;
    std::string file;             ///< in the store's folder
    std::uint64_t first_row = 0;  ///< of the dataset
    std::uint64_t rows = 0;
    std::uint64_t tokens = 0;  ///< positions that it holds: those whose label counts
    std::uint64_t bytes = 0;   ///< of the file
    std::string sha256;        ///< of the file
    /// Sum over those tokens whose teacher gave logits of KL(teacher ‖ stored), in nats, and their number. Of `sampled`
    /// KL(stored ‖ teacher): the other is infinite. See StoreError.
    double kl_sum = 0;
    std::uint64_t kl_tokens = 0;
};

BOOST_DESCRIBE_STRUCT(StoreShard, (), (shard, file, first_row, rows, tokens, bytes, sha256, kl_sum, kl_tokens))

/// Settings that a format does not take are set to 0, k is cut to the vocabulary, shard_rows chosen where it is 0
/// (about 32 MiB a shard at most, by the bytes that a token takes at most, and 64 shards where each has 64 rows then).
/// The error (invalid_input) names the field that is out of range.
Result<StoreManifest> complete_manifest(StoreManifest manifest);

/// The first field in which the two name different data, as "dataset_hash is …, … is expected"; empty when none.
/// Not compared: teacher, which the caller compares by same_teacher(), teacher_name, teacher_tokenizer, generator and
/// shard_rows.
[[nodiscard]] std::optional<std::string> find_difference(const StoreManifest& stored, const StoreManifest& wanted);

/// Bytes that one position takes at most in a shard, without what a row adds.
[[nodiscard]] std::uint64_t max_token_bytes(const StoreManifest& manifest) noexcept;

/// A store is in this folder, or was begun.
[[nodiscard]] bool store_exists(const std::filesystem::path& folder);

/// Why there will not be a store in this folder, as "DIR is not a store: …"; nothing where one is, or may be begun:
/// there is no folder, or one with nothing but what writers leave.
[[nodiscard]] std::optional<std::string> no_store_reason(const std::filesystem::path& folder);

/// Errors name the file, or say that the folder is not a store.
Result<StoreManifest> read_manifest(const std::filesystem::path& folder);
Result<void> write_manifest(const std::filesystem::path& folder, const StoreManifest& manifest);

}  // namespace distilld
