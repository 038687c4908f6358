! Regions of a Fortran program for Polymeter: compile this file with the program, and link with -lpolymeter_regions.
module polymeter_regions
  use, intrinsic :: iso_c_binding, only: c_char, c_int, c_null_char
  implicit none
  private
  public :: region_begin, region_end, regions_flush

  interface
    subroutine c_region_begin(name) bind(C, name="polymeter_region_begin")
      import :: c_char
      character(kind=c_char), dimension(*), intent(in) :: name
    end subroutine c_region_begin
    subroutine c_region_end(name) bind(C, name="polymeter_region_end")
      import :: c_char
      character(kind=c_char), dimension(*), intent(in) :: name
    end subroutine c_region_end
    ! Sends what was counted, and waits for it at most a second. Returns 0, or -1 if the agent has not accepted it.
    ! This happens at the end of the program by itself.
    function regions_flush() result(status) bind(C, name="polymeter_regions_flush")
      import :: c_int
      integer(c_int) :: status
    end function regions_flush
  end interface

contains

  ! Enters a region. Blanks at the end of its name do not count.
  subroutine region_begin(name)
    character(len=*), intent(in) :: name
    call c_region_begin(trim(name) // c_null_char)
  end subroutine region_begin

  ! Leaves a region, and those inside it whose end was forgotten.
  subroutine region_end(name)
    character(len=*), intent(in) :: name
    call c_region_end(trim(name) // c_null_char)
  end subroutine region_end
end module polymeter_regions
