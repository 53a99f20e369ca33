#include "pipeline/store/store_checks.hpp"

#include <algorithm>
#include <limits>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/files/open_file.hpp"
#include "base/sha256.hpp"
#include "pipeline/core/target_rows.hpp"
#include "pipeline/store/divergence.hpp"
#include "pipeline/store/formats/row_codec.hpp"
#include "pipeline/store/sealed_shards.hpp"
#include "pipeline/store/shard_leases.hpp"
#include "pipeline/store/unsealed_rows.hpp"
#include "pipeline/store/unsealed_shard.hpp"

namespace distilld {

namespace fs = std::filesystem;

namespace {

void verify_shard(const fs::path& folder, const StoreShard& entry, const RowCodec& codec, StoreVerification& result) {
    const fs::path path = folder / entry.file;
    std::error_code error;
    if (!fs::exists(path, error)) {
        result.defects.push_back(path.string() + ": is missing");
        return;
    }
    if (auto defect = wrong_size(folder, entry)) {
        result.defects.push_back(std::move(*defect));
        return;
    }
    const auto shard = ShardFile::open(path, codec, entry.shard);
    if (!shard) {
        result.defects.push_back(shard.error().message);
        return;
    }
    const std::size_t before = result.defects.size();
    for (std::uint64_t i = 0; i < entry.rows; ++i) {
        const auto row = (*shard)->row(entry.first_row + i);
        if (row) {
            ++result.rows;
            result.tokens += row->tokens;
        } else {
            result.defects.push_back(row.error().message);
        }
    }
    const auto sum = sha256_file(path);
    if (!sum) {
        result.defects.push_back(sum.error().message);
    } else if (*sum != entry.sha256 && result.defects.size() == before) {
        result.defects.push_back(path.string() + ": its SHA-256 does not match, though its rows are whole");
    }
}

void sort_files(const fs::path& folder, const StoreManifest& manifest, const std::set<std::string>& shards,
                StoreVerification& result) {
    const auto names = names_in(folder);
    for (const std::string& name : names ? *names : std::vector<std::string>()) {
        if (name == "manifest.json" || name == "shards.jsonl" || name == "lock" || ShardLeases::is_file(name) ||
            shards.contains(name)) {
            continue;
        }
        const auto shard = UnsealedShard::shard_of_file(name);
        const bool unsealed = shard && *shard < manifest.shard_count();
        (unsealed ? result.unsealed : result.foreign).push_back((folder / name).string());
    }
    std::ranges::sort(result.unsealed);
    std::ranges::sort(result.foreign);
}

std::vector<float> floats_of(const ArrayView& array, std::size_t first, std::size_t count) {
    std::vector<float> values(count);
    for (std::size_t i = 0; i < count; ++i) {
        values[i] = element_as_float(array, first + i);
    }
    return values;
}

/// Adds the divergences of one position. In a store of logits, all tokens are entries.
void add_position(const TeacherTargets& stored, const TeacherTargets& full, std::size_t at, StoreError& error) {
    const std::size_t width = stored.width;
    const auto logits = floats_of(full.values, at * full.width, full.width);
    const auto values = floats_of(stored.values, at * width, width);
    std::vector<std::int32_t> ids(width);
    const bool entries = stored.kind == TeacherTargets::Kind::topk;
    for (std::size_t i = 0; i < width; ++i) {
        ids[i] = static_cast<std::int32_t>(entries ? element_as_id(stored.ids, at * width + i) : i);
    }
    const float tail = entries ? element_as_float(stored.tail, at) : -std::numeric_limits<float>::infinity();
    const StoredDistribution distribution{ids, values, tail};
    error.kl_teacher_stored += kl_teacher_stored(logits, distribution);
    error.kl_stored_teacher += kl_stored_teacher(logits, distribution);
    ++error.tokens;
}

}  // namespace

Result<StoreVerification> verify_store(const fs::path& folder) {
    const auto manifest = read_manifest(folder);
    if (!manifest) {
        return manifest.error();
    }
    std::uint64_t offset = 0;
    const auto list = read_shard_list(folder, *manifest, offset);
    if (!list) {
        return list.error();
    }
    std::map<std::uint64_t, StoreShard> shards;
    std::set<std::string> names;
    for (const StoreShard& entry : *list) {
        shards[entry.shard] = entry;
        names.insert(entry.file);
    }
    const RowCodec codec(*manifest);
    StoreVerification result;
    result.shards = shards.size();
    for (const auto& [number, entry] : shards) {
        verify_shard(folder, entry, codec, result);
    }
    sort_files(folder, *manifest, names, result);
    UnsealedRows unsealed(folder, codec);
    const auto is_sealed = [&shards](std::uint64_t shard) { return shards.contains(shard); };
    if (const auto looked = unsealed.refresh(is_sealed); !looked) {
        return looked.error();
    }
    result.dataset_rows = manifest->rows;
    result.unsealed_rows = unsealed.count();
    return result;
}

Result<StoreError> measure_error(StoreReader& stored, StoreReader& full, std::uint64_t max_rows) {
    const auto refused = [&](const std::string& what) {
        return invalid_input(full.folder().string() + ": cannot be compared with " + stored.folder().string() + ": " +
                             what);
    };
    if (full.manifest().format != StoreFormat::full) {
        return refused(std::string("its format is ") + to_string(full.manifest().format) + ", full is expected");
    }
    if (full.manifest().dataset_hash != stored.manifest().dataset_hash ||
        full.manifest().vocabulary != stored.manifest().vocabulary) {
        return refused("another dataset or vocabulary");
    }
    StoreError error;
    std::uint64_t rows = 0;
    for (std::uint64_t row = 0; row < stored.manifest().rows && rows < max_rows; ++row) {
        if (!stored.has(row) || !full.has(row)) {
            continue;
        }
        ++rows;
        const auto batch = stored.batch_of({row});
        if (!batch) {
            return batch.error();
        }
        const auto ours = stored.read(*batch);
        if (!ours) {
            return ours.error();
        }
        const auto theirs = full.read(*batch);
        if (!theirs) {
            return theirs.error();
        }
        for (std::size_t t = 0; t < batch->columns; ++t) {
            if (batch->labels[t] != kIgnoredLabel) {
                add_position(*ours, *theirs, t, error);
            }
        }
    }
    if (error.tokens > 0) {
        error.kl_teacher_stored /= static_cast<double>(error.tokens);
        error.kl_stored_teacher /= static_cast<double>(error.tokens);
    }
    return error;
}

}  // namespace distilld
