// The floating-point state in which kernels run.
#pragma once

namespace mantissa::inline v0 {

/// While alive, this thread flushes subnormal results to zero and reads subnormal operands as zero.
/// Without it, one assist per subnormal makes kernels with an exponential several times slower.
class FlushSubnormals {
  public:
    FlushSubnormals();
    ~FlushSubnormals();
    FlushSubnormals(const FlushSubnormals&) = delete;
    FlushSubnormals& operator=(const FlushSubnormals&) = delete;

  private:
    unsigned saved_;
};

}  // namespace mantissa
