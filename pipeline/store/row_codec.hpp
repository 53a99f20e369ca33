#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "pipeline/core/micro_batch.hpp"
#include "pipeline/store/manifest.hpp"
#include "pipeline/store/target_buffers.hpp"

namespace distilld {

/// One row of the dataset as a store keeps it: only positions whose label counts. Its bytes depend on the row and its
/// targets alone.
struct StoredRow {
    std::uint64_t row = 0;
    std::uint32_t tokens = 0;     ///< positions that are stored
    std::vector<std::byte> mask;  ///< bit t % 8 of byte t / 8: position t is stored; ceil(sequence_length / 8) bytes
    std::vector<std::vector<std::byte>> streams;  ///< as RowCodec::streams() names them
    double kl_sum = 0;                            ///< see StoreShard
    std::uint64_t kl_tokens = 0;
};

/// The same where it lies: in a StoredRow or in a mapped shard, which must outlive it.
struct StoredRowView {
    std::uint64_t row = 0;
    std::uint32_t tokens = 0;
    std::span<const std::byte> mask;
    std::vector<std::span<const std::byte>> streams;
};
[[nodiscard]] StoredRowView view_of(const StoredRow& row);

/// CRC-32C over the row's number (u64, little-endian), its mask and its streams in their order.
[[nodiscard]] std::uint32_t checksum_of(const StoredRowView& row);

/// A tensor of a shard: of each position `width` elements, or as many as the position needs (ragged).
struct StoreStream {
    std::string name;
    ElementType type = ElementType::u8;
    std::uint64_t width = 0;  ///< elements of a position; 0 = ragged: `<name>_starts` says where each row begins
};

/// Makes stored rows of a teacher's targets and the other way round. Immutable; any thread, several at once.
class RowCodec {
  public:
    virtual ~RowCodec() = default;

    [[nodiscard]] virtual const StoreManifest& manifest() const = 0;
    [[nodiscard]] virtual const std::vector<StoreStream>& streams() const = 0;

    /// Why the bytes cannot be a row of this store, for instance lengths that are not those of its tokens, ids outside
    /// the vocabulary; empty when they can. What decode() is given has been found to have none.
    [[nodiscard]] virtual std::optional<std::string> find_defect(const StoredRowView& row) const = 0;

    /// The rows batch.row_ids of the batch's B rows, in its order. Each position whose label counts must have been
    /// given, with ids below the vocabulary and no NaN. Targets with more entries than k are cut (the tail takes what
    /// is left); logits are reduced; fewer entries, hidden states and what else cannot be kept in this format is an
    /// error (invalid_input) that names row and position. `sampled` and `full` need logits. The draws of `sampled`
    /// depend on dataset, row and position alone.
    [[nodiscard]] virtual Result<std::vector<StoredRow>> encode(const TokenBatch& batch,
                                                                const TeacherTargets& targets) const = 0;

    /// What a reader gives for these rows: kind logits (full) or topk, [batch.rows, batch.columns, width], width being
    /// the vocabulary, k or `samples`; ids i32 by descending probability, values f16 or f32, tail f32, loss_mask 1
    /// where a position is stored (what stands elsewhere is 0). `rows` are those of `batch`, in its order; a position
    /// whose label counts and that is not stored is an error. Entries beyond those that a position has (topp, sampled)
    /// are ids that it does not name, from the vocabulary's end on: at even shares of the tail, which for `sampled` is
    /// empty (−inf).
    /// The output's memory is from `buffers`.
    [[nodiscard]] virtual Result<TeacherTargets> decode(const TokenBatch& batch, std::span<const StoredRowView> rows,
                                                        TargetBuffers& buffers) const = 0;

    /// The same for rows that encode() made: what training on the store will see of them.
    [[nodiscard]] Result<TeacherTargets> decode(const TokenBatch& batch, std::span<const StoredRow> rows,
                                                TargetBuffers& buffers) const;
};

/// `manifest` as complete_manifest() gives it.
std::unique_ptr<RowCodec> make_row_codec(const StoreManifest& manifest);

}  // namespace distilld
