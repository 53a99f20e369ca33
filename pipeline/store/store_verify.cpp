#include "pipeline/store/store_verify.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "base/open_file.hpp"
#include "base/sha256.hpp"
#include "pipeline/store/row_codec.hpp"
#include "pipeline/store/sealed_shards.hpp"
#include "pipeline/store/shard_leases.hpp"
#include "pipeline/store/unsealed_rows.hpp"
#include "pipeline/store/unsealed_shard.hpp"

namespace distilld {
namespace {

namespace fs = std::filesystem;

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
        result.defects.push_back(path.string() + ": its SHA-256 is another, though its rows are whole");
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
    const auto codec = make_row_codec(*manifest);
    StoreVerification result;
    result.shards = shards.size();
    for (const auto& [number, entry] : shards) {
        verify_shard(folder, entry, *codec, result);
    }
    sort_files(folder, *manifest, names, result);
    UnsealedRows unsealed(folder, *codec);
    const auto is_sealed = [&shards](std::uint64_t shard) { return shards.contains(shard); };
    if (const auto looked = unsealed.refresh(is_sealed); !looked) {
        return looked.error();
    }
    result.dataset_rows = manifest->rows;
    result.unsealed_rows = unsealed.count();
    return result;
}

}  // namespace distilld
