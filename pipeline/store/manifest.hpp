#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/describes.hpp"
#include "base/enum_names.hpp"
#include "base/error.hpp"

namespace distilld {

/// How a store keeps a position's distribution. docs/store.md has the exact bytes.
enum class StoreFormat {
    full,     ///< logits of the whole vocabulary
    topk,     ///< the k most probable: i32 ids, log-probabilities, tail. Read by copying
    packed,   ///< the same with ids of ceil(log2 V) bits
    topp,     ///< as packed, with only as many entries as reach probability p together, at most k
    sampled,  ///< draws from the whole distribution: unbiased, unlike the k most probable
    tensors,  ///< not of a distribution: the named outputs for a sample
};
BOOST_DESCRIBE_ENUM(StoreFormat, full, topk, packed, topp, sampled, tensors)

/// How logits, log-probabilities or the elements of tensors are kept.
enum class StoreValues {
    f16,
    f32,   ///< full, topk and tensors only: an f32 teacher's values, bit for bit
    u8,    ///< packed and topp only: steps of 1/255 of the range from a position's first to its last entry
    bf16,  ///< tensors only
};
BOOST_DESCRIBE_ENUM(StoreValues, f16, f32, u8, bf16)

/// An output of the teacher in a store of format tensors.
struct StoredTensor {
    std::string name;
    std::vector<std::int64_t> shape;  ///< of one sample
};

BOOST_DESCRIBE_STRUCT(StoredTensor, (), (name, shape))

/// Bits of a packed token id: ceil(log2 vocabulary), at least 1.
[[nodiscard]] constexpr std::uint32_t id_bits(std::uint64_t vocabulary) noexcept {
    std::uint32_t bits = 1;
    while (bits < 32 && (std::uint64_t{1} << bits) < vocabulary) {
        ++bits;
    }
    return bits;
}

/// The identity of a store: DIR/manifest.json, written once. DIR/shards.jsonl lists sealed shards (StoreShard).
struct StoreManifest {
    static constexpr std::uint32_t kVersion = 1;

    std::uint32_t version = kVersion;  ///< of the layout
    StoreFormat format = StoreFormat::packed;
    StoreValues values = StoreValues::f16;  ///< sampled: f16, unused
    std::uint32_t k = 0;                    ///< entries per position (topk, packed) or their maximum (topp); else 0
    double p = 0;                           ///< topp: the mass to reach, above 0, at most 1; else 0
    std::uint32_t samples = 0;              ///< sampled: draws per position, 1 to 255; else 0
    std::vector<StoredTensor> tensors;      ///< format tensors: the outputs, in their order; else empty
    std::uint64_t vocabulary = 0;           ///< ids are below it; 0 with format tensors
    std::uint64_t rows = 0;                 ///< of the dataset
    std::uint32_t sequence_length = 0;      ///< maximum columns of a batch
    std::uint32_t shard_rows = 0;           ///< rows [i·R, (i+1)·R) are shard i; 0 for a new store: chosen by size
    double temperature = 1;                 ///< of the values; always 1
    std::string dataset_hash;               ///< Dataset::hash()
    std::string tokenizer_hash;             ///< of the tokenizer that made the ids; empty = ready-made ids
    std::string teacher;                    ///< teacher_fingerprint(); empty = unknown
    std::string teacher_name;               ///< for users; not compared
    std::string teacher_tokenizer;          ///< hash of the teacher's tokenizer; empty = unknown. Not compared
    std::string generator;                  ///< program and version that made it; not compared

    [[nodiscard]] std::uint64_t shard_count() const noexcept {
        return shard_rows == 0 ? 0 : (rows + shard_rows - 1) / shard_rows;
    }
    [[nodiscard]] std::uint64_t shard_of(std::uint64_t row) const noexcept { return row / shard_rows; }
};

BOOST_DESCRIBE_STRUCT(StoreManifest, (),
                      (version, format, values, k, p, samples, tensors, vocabulary, rows, sequence_length, shard_rows,
                       temperature, dataset_hash, tokenizer_hash, teacher, teacher_name, teacher_tokenizer, generator))

/// A sealed shard: one line of DIR/shards.jsonl.
struct StoreShard {
    std::uint64_t shard = 0;
    std::string file;             ///< in the store's folder
    std::uint64_t first_row = 0;  ///< of the dataset
    std::uint64_t rows = 0;
    std::uint64_t tokens = 0;  ///< stored positions: those with a counted label
    std::uint64_t bytes = 0;   ///< of the file
    std::string sha256;        ///< of the file
    /// Sum of KL(teacher ‖ stored) in nats over the measured tokens (one in 8 of those with logits), and their number.
    /// For `sampled`: KL(stored ‖ teacher), because the other is infinite. See StoreError.
    double kl_sum = 0;
    std::uint64_t kl_tokens = 0;
};

BOOST_DESCRIBE_STRUCT(StoreShard, (), (shard, file, first_row, rows, tokens, bytes, sha256, kl_sum, kl_tokens))

/// Sets unused settings of the format to 0, cuts k to the vocabulary, and chooses a shard_rows of 0: at most about 32
/// MiB per shard (at the maximum bytes per token), and at least 64 shards if each then has 64 rows. The error
/// (invalid_input) names the field that is out of range.
Result<StoreManifest> complete_manifest(StoreManifest manifest);

/// The first field in which the two describe different data, as "dataset_hash is …, … is expected"; empty if none. Not
/// compared: teacher (the caller uses same_teacher()), teacher_name, teacher_tokenizer, generator and shard_rows.
[[nodiscard]] std::optional<std::string> find_difference(const StoreManifest& stored, const StoreManifest& wanted);

/// Maximum bytes of a position in a shard, without the overhead per row.
[[nodiscard]] std::uint64_t max_token_bytes(const StoreManifest& manifest) noexcept;

/// Elements of the tensor in one sample.
[[nodiscard]] std::uint64_t element_count(const StoredTensor& tensor) noexcept;

/// Whether the folder has a store, complete or not.
[[nodiscard]] bool store_exists(const std::filesystem::path& folder);

/// Returns why the folder cannot hold a store, as "DIR is not a store: …"; empty if it has a store, or can begin one
/// because it is missing or has only leftovers of writers.
[[nodiscard]] std::optional<std::string> no_store_reason(const std::filesystem::path& folder);

/// Errors name the file, or say that the folder is not a store.
Result<StoreManifest> read_manifest(const std::filesystem::path& folder);
Result<void> write_manifest(const std::filesystem::path& folder, const StoreManifest& manifest);

/// Whether the teacher of the existing store (first) is the wanted teacher. If the function is empty: the texts are
/// equal, or one is empty.
using SameTeacher = std::function<bool(const std::string&, const std::string&)>;

/// Returns the manifest of the existing store if it is of the same data, or writes it. No other process may be writing
/// it. The error (invalid_input) names the field that differs.
Result<StoreManifest> agree_on_manifest(const std::filesystem::path& folder, const StoreManifest& wanted,
                                        const SameTeacher& same_teacher);

}  // namespace distilld
