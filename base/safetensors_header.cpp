#include "base/safetensors_header.hpp"

#include <sys/stat.h>

#include <algorithm>
#include <boost/json.hpp>
#include <cerrno>
#include <functional>
#include <optional>
#include <set>
#include <system_error>
#include <utility>

#include "base/files/read_at.hpp"
#include "base/json_text.hpp"

namespace distilld {
namespace {

namespace json = boost::json;

constexpr std::uint64_t kMaxHeaderBytes = 100'000'000;  // the Python library's limit
constexpr std::uint64_t kLengthBytes = 8;
constexpr std::size_t kMaxDimensions = 16;

constexpr SafetensorsDtype kDtypes[] = {
    {"BOOL", 1, 0}, {"U8", 1, 1},  {"I8", 1, 2},  {"I16", 2, 3}, {"F16", 2, 4},
    {"BF16", 2, 5}, {"I32", 4, 6}, {"F32", 4, 7}, {"F64", 8, 8}, {"I64", 8, 9},
};

/// Fills the span with the bytes from `offset`; an error has no file name.
using ReadAt = std::function<Result<void>(std::span<std::byte>, std::uint64_t offset)>;

std::optional<std::uint64_t> as_unsigned(const json::value& value) {
    if (value.is_uint64()) {
        return value.get_uint64();
    }
    if (value.is_int64() && value.get_int64() >= 0) {
        return static_cast<std::uint64_t>(value.get_int64());
    }
    return std::nullopt;
}

/// Parses one tensor; its range is still relative to the data section. The message lacks file and tensor name.
boost::system::result<SafetensorsTensor, std::string> parse_entry(const json::value& value) {
    const auto* object = value.if_object();
    if (object == nullptr) {
        return std::string("is not an object");
    }
    const auto* dtype_value = object->if_contains("dtype");
    if (dtype_value == nullptr || !dtype_value->is_string()) {
        return std::string("has no dtype");
    }
    SafetensorsTensor tensor;
    tensor.dtype = find_safetensors_dtype(std::string_view(dtype_value->get_string()));
    if (tensor.dtype == nullptr) {
        return "has dtype " + std::string(dtype_value->get_string()) + ", which is not supported";
    }
    const auto* shape = object->if_contains("shape");
    if (shape == nullptr || !shape->is_array() || shape->get_array().size() > kMaxDimensions) {
        return std::string("has no valid shape");
    }
    std::uint64_t bytes = tensor.dtype->bytes;
    for (const auto& size_value : shape->get_array()) {
        const auto size = as_unsigned(size_value);
        if (!size || *size > static_cast<std::uint64_t>(INT64_MAX)) {
            return std::string("has a shape that is not a list of sizes");
        }
        if (__builtin_mul_overflow(bytes, *size, &bytes)) {
            return std::string("has a shape that is too large");
        }
        tensor.shape.push_back(static_cast<std::int64_t>(*size));
    }
    const auto* offsets = object->if_contains("data_offsets");
    if (offsets == nullptr || !offsets->is_array() || offsets->get_array().size() != 2) {
        return std::string("has no data_offsets");
    }
    const auto begin = as_unsigned(offsets->get_array()[0]);
    const auto end = as_unsigned(offsets->get_array()[1]);
    if (!begin || !end || *end < *begin) {
        return std::string("has data_offsets that are not a range");
    }
    if (*end - *begin != bytes) {
        return "holds " + std::to_string(*end - *begin) + " bytes where its shape and dtype need " +
               std::to_string(bytes);
    }
    tensor.begin = *begin;
    tensor.bytes = bytes;
    return tensor;
}

Result<std::map<std::string, std::string>> parse_metadata(const json::value& value, const std::filesystem::path& path) {
    const auto* members = value.if_object();
    if (members == nullptr) {
        return damaged_safetensors(path, "__metadata__ is not an object");
    }
    std::map<std::string, std::string> metadata;
    for (const auto& [field, text] : *members) {
        if (!text.is_string()) {
            return damaged_safetensors(path, "__metadata__." + std::string(field) + " is not a string");
        }
        metadata.emplace(std::string(field), std::string(text.get_string()));
    }
    return metadata;
}

/// Converts ranges to offsets in the file. In the order of the data, each tensor must begin where the previous one
/// ended, and the last must end with the file.
Result<void> check_ranges(SafetensorsHeader& header, std::uint64_t header_size, std::uint64_t file_size,
                          const std::filesystem::path& path) {
    // Empty tensors come before the tensor that begins at the same offset.
    std::ranges::sort(header.tensors, {}, [](const SafetensorsTensor& tensor) {
        return std::tuple(tensor.begin, tensor.bytes, std::string_view(tensor.name));
    });
    const std::uint64_t data_size = file_size - header_size;
    std::uint64_t expected = 0;
    for (auto& tensor : header.tensors) {
        if (tensor.begin < expected) {
            return damaged_safetensors(path, "tensor " + tensor.name + " overlaps the one before it");
        }
        if (tensor.begin > expected) {
            return damaged_safetensors(
                path, "a gap of " + std::to_string(tensor.begin - expected) + " bytes before tensor " + tensor.name);
        }
        expected = tensor.begin + tensor.bytes;
        if (expected > data_size) {
            return damaged_safetensors(path, "truncated: tensor " + tensor.name + " ends at data byte " +
                                                 std::to_string(expected) + ", the file has " +
                                                 std::to_string(data_size));
        }
        tensor.begin += header_size;
    }
    if (expected != data_size) {
        return damaged_safetensors(path, std::to_string(data_size - expected) + " bytes after the last tensor");
    }
    return {};
}

Result<SafetensorsHeader> read_header(std::uint64_t file_size, const ReadAt& read_at,
                                      const std::filesystem::path& path) {
    if (file_size < kLengthBytes) {
        return damaged_safetensors(
            path, "only " + std::to_string(file_size) + " bytes long, too short for the header length");
    }
    std::uint64_t length = 0;
    if (auto read = read_at(std::as_writable_bytes(std::span(&length, 1)), 0); !read) {
        return read.error();
    }
    if (length > kMaxHeaderBytes) {
        return damaged_safetensors(path, "claims a header of " + std::to_string(length) + " bytes; at most " +
                                             std::to_string(kMaxHeaderBytes) + " are allowed");
    }
    if (length > file_size - kLengthBytes) {
        return damaged_safetensors(path, "truncated in the header: " + std::to_string(length) + " bytes claimed, " +
                                             std::to_string(file_size - kLengthBytes) + " there");
    }
    std::string text(static_cast<std::size_t>(length), '\0');
    if (auto read = read_at(std::as_writable_bytes(std::span(text)), kLengthBytes); !read) {
        return read.error();
    }
    boost::system::error_code code;
    const auto parsed = json::parse(text, code);
    if (code) {
        return damaged_safetensors(path, "the header is not JSON (" + code.message() + ")");
    }
    const auto* object = parsed.if_object();
    if (object == nullptr) {
        return damaged_safetensors(path, "the header is not a JSON object");
    }
    SafetensorsHeader header;
    for (const auto& [key, value] : *object) {
        const std::string name(key);
        if (name == "__metadata__") {
            auto metadata = parse_metadata(value, path);
            if (!metadata) {
                return metadata.error();
            }
            header.metadata = std::move(*metadata);
            continue;
        }
        auto tensor = parse_entry(value);
        if (!tensor) {
            return damaged_safetensors(path, "tensor " + name + " " + tensor.error());
        }
        tensor->name = name;
        header.tensors.push_back(std::move(*tensor));
    }
    if (auto checked = check_ranges(header, kLengthBytes + length, file_size, path); !checked) {
        return checked.error();
    }
    return header;
}

}  // namespace

const SafetensorsDtype* find_safetensors_dtype(std::string_view name) noexcept {
    const auto* found =
        std::ranges::find_if(kDtypes, [&](const SafetensorsDtype& dtype) { return name == dtype.name; });
    return found == std::end(kDtypes) ? nullptr : found;
}

Error damaged_safetensors(const std::filesystem::path& path, std::string what) {
    return invalid_input(path.string() + ": not a valid safetensors file: " + std::move(what));
}

Result<SafetensorsHeader> read_safetensors_header(int descriptor, const std::filesystem::path& path) {
    struct stat status{};
    if (::fstat(descriptor, &status) != 0) {
        return io_error(path.string() + ": cannot stat: " + std::generic_category().message(errno));
    }
    if (!S_ISREG(status.st_mode)) {
        return io_error(path.string() + ": not a regular file");
    }
    const ReadAt read_at = [&](std::span<std::byte> target, std::uint64_t offset) {
        return read_all_at(descriptor, target, offset, path);
    };
    return read_header(static_cast<std::uint64_t>(status.st_size), read_at, path);
}

Result<SafetensorsHeader> parse_safetensors_header(std::span<const std::byte> file, const std::filesystem::path& path) {
    const ReadAt read_at = [&](std::span<std::byte> target, std::uint64_t offset) -> Result<void> {
        std::ranges::copy(file.subspan(offset, target.size()), target.begin());
        return {};
    };
    return read_header(file.size(), read_at, path);
}

Result<std::string> write_safetensors_header(SafetensorsHeader& header, const std::filesystem::path& path) {
    std::ranges::sort(header.tensors, [](const SafetensorsTensor& left, const SafetensorsTensor& right) {
        return left.dtype->rank != right.dtype->rank ? left.dtype->rank > right.dtype->rank : left.name < right.name;
    });
    std::set<std::string_view> seen{"__metadata__"};
    json::object members;
    if (!header.metadata.empty()) {
        json::object fields;
        for (const auto& [key, text] : header.metadata) {
            fields[key] = text;
        }
        members["__metadata__"] = std::move(fields);
    }
    std::uint64_t offset = 0;
    for (auto& tensor : header.tensors) {
        if (!seen.insert(tensor.name).second) {
            return invalid_input(path.string() + ": cannot write tensor " + tensor.name + ": the name is taken");
        }
        tensor.begin = offset;
        tensor.bytes = tensor.dtype->bytes;
        json::array shape;
        for (const auto size : tensor.shape) {
            shape.emplace_back(size);
            tensor.bytes *= static_cast<std::uint64_t>(size);
        }
        offset += tensor.bytes;
        json::object entry;
        entry["dtype"] = tensor.dtype->name;
        entry["shape"] = std::move(shape);
        entry["data_offsets"] = json::array{tensor.begin, offset};
        members[tensor.name] = std::move(entry);
    }
    auto text = to_text(members);
    text.append((kLengthBytes - text.size() % kLengthBytes) % kLengthBytes, ' ');
    if (text.size() > kMaxHeaderBytes) {
        return invalid_input(path.string() + ": the header would exceed " + std::to_string(kMaxHeaderBytes) + " bytes");
    }
    for (auto& tensor : header.tensors) {
        tensor.begin += kLengthBytes + text.size();
    }
    std::string length(kLengthBytes, '\0');
    for (std::size_t i = 0; i < kLengthBytes; ++i) {
        length[i] = static_cast<char>(static_cast<std::uint64_t>(text.size()) >> (8 * i) & 0xFFU);
    }
    return length + text;
}

}  // namespace distilld
