#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.hpp"

/// The header of a safetensors file (https://huggingface.co/docs/safetensors): u64 little-endian header length, JSON
/// header, data.
namespace distilld {

/// One of F64 F32 F16 BF16 I64 I32 I16 I8 U8 BOOL.
struct SafetensorsDtype {
    const char* name;
    std::uint32_t bytes;  ///< per element
    int rank;             ///< the Python library's order of tensors: highest first
};

/// nullptr for an unknown name.
[[nodiscard]] const SafetensorsDtype* find_safetensors_dtype(std::string_view name) noexcept;

struct SafetensorsTensor {
    std::string name;
    const SafetensorsDtype* dtype = nullptr;
    std::vector<std::int64_t> shape;
    std::uint64_t begin = 0;  ///< offset in the file
    std::uint64_t bytes = 0;
};

struct SafetensorsHeader {
    std::vector<SafetensorsTensor> tensors;       ///< in the order of the data
    std::map<std::string, std::string> metadata;  ///< `__metadata__`
};

/// An error that says what is wrong with the file at `path`.
[[nodiscard]] Error damaged_safetensors(const std::filesystem::path& path, std::string what);

/// Reads and checks the header of an open file against its size: at most 100 MB, known dtypes, ranges inside the file
/// without overlap or gap, shape × element size == range. Errors name `path` and what is wrong.
Result<SafetensorsHeader> read_safetensors_header(int descriptor, const std::filesystem::path& path);

/// The same for a file in memory.
Result<SafetensorsHeader> parse_safetensors_header(std::span<const std::byte> file, const std::filesystem::path& path);

/// Sorts the tensors (name, dtype and shape given) as the Python library does, by descending rank of the dtype, then by
/// name. Sets `begin` and `bytes`, and returns the bytes before the data: length and header, padded with spaces to a
/// multiple of 8. The same tensors give the same bytes. Errors name `path`: a duplicate name, a header above 100 MB.
Result<std::string> write_safetensors_header(SafetensorsHeader& header, const std::filesystem::path& path);

}  // namespace distilld
