#include <limits>

#include "base/half_float.hpp"
#include "pipeline/teacher/protocols/kserve/body_reader.hpp"

namespace distilld::kserve {
namespace {

namespace od = simdjson::ondemand;

/// Puts the numbers of a `data` array into storage of the tensor's datatype.
class DataReader {
  public:
    DataReader(const InferTensor& tensor, std::uint64_t count, std::size_t width, std::byte* out)
        : tensor_(tensor), count_(count), width_(width), out_(out) {}

    void read(od::array array) {
        level(array, 0);
        if (filled_ != count_) {
            fail(tensor_label(tensor_.name) + ": 'data' holds " + std::to_string(filled_) +
                 " values, the shape needs " + std::to_string(count_));
        }
    }

  private:
    void level(od::array array, std::size_t depth) {
        std::uint64_t items = 0;
        bool arrays = false;
        bool scalars = false;
        for (auto item : array) {
            od::value value = item.value();
            ++items;
            if (value.type().value() == od::json_type::array) {
                arrays = true;
                if (depth + 1 >= tensor_.shape.size()) {
                    fail(tensor_label(tensor_.name) + ": 'data' is nested deeper than its shape");
                }
                level(value.get_array().value(), depth + 1);
            } else {
                scalars = true;
                put(value);
            }
        }
        if (arrays && scalars) {
            fail(tensor_label(tensor_.name) + ": 'data' mixes numbers and arrays");
        }
        // A flat list is allowed at the top only; anything else has the very form of the shape.
        const bool flat = depth == 0 && !arrays;
        if (!flat) {
            const bool innermost = depth + 1 == tensor_.shape.size();
            if ((scalars && !innermost) || items != static_cast<std::uint64_t>(tensor_.shape[depth])) {
                fail(tensor_label(tensor_.name) + ": 'data' does not have the form of its shape");
            }
        }
    }

    void put(od::value& value) {
        if (filled_ == count_) {
            fail(tensor_label(tensor_.name) + ": 'data' holds more values than the shape needs (" +
                 std::to_string(count_) + ")");
        }
        std::byte* out = out_ + filled_ * width_;
        ++filled_;
        const std::string_view type = tensor_.datatype;
        if (type == "FP32") {
            store(out, static_cast<float>(real(value)));
        } else if (type == "FP64") {
            store(out, real(value));
        } else if (type == "FP16") {
            store(out, float_to_half(static_cast<float>(real(value))));
        } else if (type == "BF16") {
            store(out, float_to_bfloat16(static_cast<float>(real(value))));
        } else if (type == "BOOL") {
            bool flag = false;
            if (value.get_bool().get(flag) != simdjson::SUCCESS) {
                const auto number = integer<std::int64_t>(value, 0, 1);
                flag = number == 1;
            }
            store(out, static_cast<std::uint8_t>(flag ? 1 : 0));
        } else if (type == "UINT64") {
            std::uint64_t number = 0;
            if (value.get_uint64().get(number) != simdjson::SUCCESS) {
                wrong_value();
            }
            store(out, number);
        } else {
            store_integer(type, value, out);
        }
    }

    void store_integer(std::string_view type, od::value& value, std::byte* out) {
        if (type == "INT32") {
            store(out, static_cast<std::int32_t>(ranged<std::int32_t>(value)));
        } else if (type == "INT64") {
            store(out, ranged<std::int64_t>(value));
        } else if (type == "UINT32") {
            store(out, static_cast<std::uint32_t>(ranged<std::uint32_t>(value)));
        } else if (type == "INT16") {
            store(out, static_cast<std::int16_t>(ranged<std::int16_t>(value)));
        } else if (type == "UINT16") {
            store(out, static_cast<std::uint16_t>(ranged<std::uint16_t>(value)));
        } else if (type == "INT8") {
            store(out, static_cast<std::int8_t>(ranged<std::int8_t>(value)));
        } else {
            store(out, static_cast<std::uint8_t>(ranged<std::uint8_t>(value)));
        }
    }

    template <class T>
    std::int64_t ranged(od::value& value) {
        return integer<std::int64_t>(value, static_cast<std::int64_t>(std::numeric_limits<T>::min()),
                                     static_cast<std::int64_t>(std::numeric_limits<T>::max()));
    }

    template <class T>
    T integer(od::value& value, T min, T max) {
        std::int64_t number = 0;
        if (value.get_int64().get(number) != simdjson::SUCCESS || number < min || number > max) {
            wrong_value();
        }
        return number;
    }

    double real(od::value& value) {
        double number = 0;
        if (value.get_double().get(number) != simdjson::SUCCESS) {
            wrong_value();
        }
        return number;
    }

    [[noreturn]] void wrong_value() const {
        fail(tensor_label(tensor_.name) + ": value " + std::to_string(filled_ - 1) + " is not a " + tensor_.datatype);
    }

    template <class T>
    static void store(std::byte* out, T value) {
        std::memcpy(out, &value, sizeof(T));
    }

    const InferTensor& tensor_;
    std::uint64_t count_;
    std::size_t width_;
    std::byte* out_;
    std::uint64_t filled_ = 0;
};

}  // namespace

void read_data(od::array array, const InferTensor& tensor, std::uint64_t count, std::size_t width, std::byte* out) {
    DataReader(tensor, count, width, out).read(array);
}

}  // namespace distilld::kserve
