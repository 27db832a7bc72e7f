! Every kind of call through the bindings that this file is compiled with.
program fortran
#ifdef F08
  use mpi_f08
#else
  use mpi
#endif
  implicit none
#ifdef F08
  type(MPI_Comm) :: comm
  type(MPI_Request) :: requests(2)
#else
  integer :: comm, requests(2)
#endif
  integer :: rank, n, right, left, i, ierr
  logical :: flag
  real(8) :: a(100), b(100)
  call MPI_Init(ierr)
  call MPI_Comm_rank(MPI_COMM_WORLD, rank, ierr)
  call MPI_Comm_size(MPI_COMM_WORLD, n, ierr)
  call MPI_Comm_dup(MPI_COMM_WORLD, comm, ierr)
  right = mod(rank + 1, n)
  left = mod(rank + n - 1, n)
  a = rank + 1
  do i = 1, 3
    call MPI_Allreduce(a, b, 100, MPI_DOUBLE_PRECISION, MPI_SUM, comm, ierr)
    call MPI_Allreduce(MPI_IN_PLACE, a, 50, MPI_DOUBLE_PRECISION, MPI_MAX, MPI_COMM_WORLD, ierr)
    call MPI_Irecv(a, 100, MPI_DOUBLE_PRECISION, left, i, comm, requests(1), ierr)
    call MPI_Isend(b, 100, MPI_DOUBLE_PRECISION, right, i, comm, requests(2), ierr)
    call MPI_Waitall(2, requests, MPI_STATUSES_IGNORE, ierr)
    call MPI_Sendrecv(a, 10, MPI_DOUBLE_PRECISION, right, 9, b, 10, MPI_DOUBLE_PRECISION, left, 9, comm, &
                      MPI_STATUS_IGNORE, ierr)
  end do
  call MPI_Ibcast(b, 100, MPI_DOUBLE_PRECISION, 0, comm, requests(1), ierr)
  flag = .false.
  do while (.not. flag)
    call MPI_Test(requests(1), flag, MPI_STATUS_IGNORE, ierr)
  end do
  call MPI_Barrier(comm, ierr)
  call MPI_Comm_free(comm, ierr)
  print '(i4, f14.2)', rank, sum(a) + sum(b)
  call MPI_Finalize(ierr)
end program
