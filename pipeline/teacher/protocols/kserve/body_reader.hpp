#pragma once

#include <simdjson.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "pipeline/teacher/protocols/kserve/message.hpp"

/// Reads the parts of a body. Failures are thrown as ErrorException (or as simdjson's own exception, if the JSON itself
/// is invalid).
namespace distilld::kserve {

[[noreturn]] void fail(std::string message);

/// "tensor 'name'".
[[nodiscard]] std::string tensor_label(std::string_view name);

/// Calls `read(key, value)` for each member that is not null. One pass, as everything here: on JSON that is malformed,
/// a search that begins again at an object's first member leaves simdjson with memory that is not the text's.
template <class Read>
void for_each_member(simdjson::ondemand::object object, const Read& read) {
    for (auto field : object) {
        const std::string_view key = field.unescaped_key();
        simdjson::ondemand::value value = field.value();
        if (!value.is_null()) {
            read(key, value);
        }
    }
}

/// Calls `read(object)` for each element of the array `field`, `limit` at most.
template <class Read>
void for_each_object(simdjson::ondemand::value value, std::string_view field, std::size_t limit, const Read& read) {
    const std::string name(field);
    simdjson::ondemand::array array;
    if (value.get_array().get(array) != simdjson::SUCCESS) {
        fail("'" + name + "' is not an array");
    }
    std::size_t count = 0;
    for (auto item : array) {
        if (count++ == limit) {
            fail("there are more than " + std::to_string(limit) + " " + name);
        }
        simdjson::ondemand::object entry;
        if (item.get_object().get(entry) != simdjson::SUCCESS) {
            fail("'" + name + "' holds something that is not an object");
        }
        read(entry);
    }
}

/// Reads a string; messages call it by `name` and `where`.
[[nodiscard]] std::string string_of(simdjson::ondemand::value value, std::string_view name, std::string_view where);

/// The `parameters` of an object that are texts, numbers or booleans.
[[nodiscard]] Parameters parameters_in(simdjson::ondemand::value value, std::string_view where);

/// `wildcards`: -1 is a valid size.
[[nodiscard]] std::vector<std::int64_t> shape_in(simdjson::ondemand::value value, const std::string& where,
                                                 std::size_t max_rank, bool wildcards);

/// Reads the numbers of a `data` array, flat or nested as the shape is, into `out`: `count` elements of the tensor's
/// datatype. `array` is its JSON from bracket to bracket; kNumberTextPadding bytes are readable after it.
void read_data(std::string_view array, const InferTensor& tensor, std::uint64_t count, std::byte* out);

/// Reads tensors from JSON and from the binary part.
class BodyReader {
  public:
    /// `binary` follows the JSON part of `json_bytes` bytes; `has_binary` says whether the message announced one.
    /// `owner` keeps it alive. `limits` and `buffers` (may be null) must outlive the reader.
    BodyReader(std::span<const std::byte> binary, bool has_binary, std::shared_ptr<const void> owner,
               const MessageLimits& limits, std::size_t json_bytes, BufferPool* buffers);

    /// Reads the array `field` of tensors. Messages call each of them a `role`.
    [[nodiscard]] std::vector<InferTensor> tensors(simdjson::ondemand::value value, std::string_view field,
                                                   std::string_view role);

    /// Fails if binary data is left over.
    void check_all_taken() const;

  private:
    InferTensor tensor(simdjson::ondemand::object object, std::string_view role);
    void take_binary(InferTensor& tensor, const Parameter& stated_size, std::uint64_t bytes);
    void read_json(InferTensor& tensor, std::string_view data, std::uint64_t count, std::uint64_t bytes) const;

    std::span<const std::byte> binary_;
    bool has_binary_;
    std::shared_ptr<const void> owner_;
    const MessageLimits& limits_;
    std::size_t json_bytes_;
    BufferPool* buffers_;
    std::size_t taken_ = 0;
    std::uint64_t tensor_bytes_ = 0;
};

}  // namespace distilld::kserve
