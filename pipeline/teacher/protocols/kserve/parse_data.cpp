#include <limits>

#include "base/half_float.hpp"
#include "pipeline/teacher/protocols/kserve/body_reader.hpp"
#include "pipeline/teacher/protocols/number_text.hpp"

namespace distilld::kserve {
namespace {

/// Null if no integer of type T begins at `at`.
template <class T>
const char* read_integer(const char* at, T& value) noexcept {
    constexpr auto kMax = static_cast<std::uint64_t>(std::numeric_limits<T>::max());
    const bool negative = *at == '-';
    std::uint64_t magnitude = 0;
    at = read_magnitude(at + (negative ? 1 : 0), magnitude);
    const bool signless = std::numeric_limits<T>::min() == 0;
    const std::uint64_t bound = negative ? (signless ? 0 : kMax + 1) : kMax;
    if (at == nullptr || magnitude > bound) {
        return nullptr;
    }
    value = static_cast<T>(negative ? std::uint64_t{0} - magnitude : magnitude);
    return at;
}

/// Reads true and false, or 1 and 0, which some servers write instead.
const char* read_bool(const char* at, const char* end, std::uint8_t& value) noexcept {
    const std::string_view text(at, static_cast<std::size_t>(end - at));
    for (const std::string_view word : {"true", "false"}) {
        if (text.starts_with(word)) {
            value = word == "true" ? 1 : 0;
            return at + word.size();
        }
    }
    at = read_integer(at, value);
    return value > 1 ? nullptr : at;
}

/// Writes the numbers of a `data` array into storage of the tensor's datatype.
class DataReader {
  public:
    DataReader(std::string_view array, const InferTensor& tensor, std::uint64_t count, std::byte* out)
        : tensor_(tensor), count_(count), out_(out), at_(array.data()), end_(array.data() + array.size()) {}

    /// `read_element(at, end, element)` returns null if there is no Element.
    template <class Element, class ReadElement>
    void read(ReadElement read_element) {
        level<Element>(0, read_element);
        if (filled_ != count_) {
            fail_data("holds " + std::to_string(filled_) + " values, the shape needs " + std::to_string(count_));
        }
    }

  private:
    /// Reads from a bracket to its counterpart.
    template <class Element, class ReadElement>
    void level(std::size_t depth, ReadElement read_element) {
        std::uint64_t items = 0;
        bool arrays = false;
        bool scalars = false;
        at_ = skip_blanks(at_ + 1);
        while (*at_ != ']' || items > 0) {
            ++items;
            if (*at_ == '[') {
                arrays = true;
                if (depth + 1 >= tensor_.shape.size()) {
                    fail_data("is nested deeper than its shape");
                }
                level<Element>(depth + 1, read_element);
            } else {
                scalars = true;
                put<Element>(read_element);
            }
            at_ = skip_blanks(at_);
            if (*at_ != ',') {
                break;
            }
            at_ = skip_blanks(at_ + 1);
        }
        if (*at_ != ']' || at_ >= end_) {
            fail_data("is not an array in JSON");
        }
        ++at_;
        check_level(depth, items, arrays, scalars);
    }

    void check_level(std::size_t depth, std::uint64_t items, bool arrays, bool scalars) const {
        if (arrays && scalars) {
            fail_data("mixes numbers and arrays");
        }
        // Only the top level may be a flat list; anything else must match the shape.
        const bool flat = depth == 0 && !arrays;
        if (!flat) {
            const bool innermost = depth + 1 == tensor_.shape.size();
            if ((scalars && !innermost) || items != static_cast<std::uint64_t>(tensor_.shape[depth])) {
                fail_data("does not have the form of its shape");
            }
        }
    }

    template <class Element, class ReadElement>
    void put(ReadElement read_element) {
        if (filled_ == count_) {
            fail_data("holds more values than the shape needs (" + std::to_string(count_) + ")");
        }
        Element element{};
        at_ = read_element(at_, end_, element);
        if (at_ == nullptr) {
            fail(tensor_label(tensor_.name) + ": value " + std::to_string(filled_) + " is not a " + tensor_.datatype);
        }
        std::memcpy(out_ + filled_ * sizeof(Element), &element, sizeof(Element));
        ++filled_;
    }

    [[noreturn]] void fail_data(const std::string& what) const {
        fail(tensor_label(tensor_.name) + ": 'data' " + what);
    }

    const InferTensor& tensor_;
    std::uint64_t count_;
    std::byte* out_;
    const char* at_;
    const char* end_;
    std::uint64_t filled_ = 0;
};

template <class T>
void read_integers(DataReader reader) {
    reader.read<T>([](const char* at, const char*, T& value) { return read_integer(at, value); });
}

/// Reads floats of 16 bits.
template <class ToBits>
void read_halves(DataReader reader, ToBits to_bits) {
    reader.read<std::uint16_t>([to_bits](const char* at, const char* end, std::uint16_t& bits) {
        float value = 0;
        at = read_float(at, end, value);
        bits = to_bits(value);
        return at;
    });
}

}  // namespace

void read_data(std::string_view array, const InferTensor& tensor, std::uint64_t count, std::byte* out) {
    DataReader reader(array, tensor, count, out);
    const std::string_view type = tensor.datatype;
    if (type == "FP32") {
        reader.read<float>([](const char* at, const char* end, float& value) { return read_float(at, end, value); });
    } else if (type == "FP64") {
        reader.read<double>(
            [](const char* at, const char* end, double& value) { return read_exact_double(at, end, value); });
    } else if (type == "FP16") {
        read_halves(reader, float_to_half);
    } else if (type == "BF16") {
        read_halves(reader, float_to_bfloat16);
    } else if (type == "BOOL") {
        reader.read<std::uint8_t>(
            [](const char* at, const char* end, std::uint8_t& value) { return read_bool(at, end, value); });
    } else if (type == "INT32") {
        read_integers<std::int32_t>(reader);
    } else if (type == "UINT32") {
        read_integers<std::uint32_t>(reader);
    } else if (type == "INT64") {
        read_integers<std::int64_t>(reader);
    } else if (type == "UINT64") {
        read_integers<std::uint64_t>(reader);
    } else if (type == "INT16") {
        read_integers<std::int16_t>(reader);
    } else if (type == "UINT16") {
        read_integers<std::uint16_t>(reader);
    } else if (type == "INT8") {
        read_integers<std::int8_t>(reader);
    } else {
        read_integers<std::uint8_t>(reader);
    }
}

}  // namespace distilld::kserve
